"""Which small errors can be planted in a module, and which of them change nothing."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

# (module, before, after) of mutants that no test can notice, and why.
EQUIVALENT: dict[tuple[str, str, str], str] = {
    ("clean/vote.py", "CHUNK = 8192", "CHUNK = 8191"): "rows at a time, which only speed depends on",
    ("clean/detect.py", "CHUNK = 4096", "CHUNK = 4097"): "rows at a time, which only speed depends on",
    ("measure/space.py", "CHUNK = 4096", "CHUNK = 4097"): "rows at a time, which only speed depends on",
    (
        "clean/calibrate.py",
        "scaled = (own - middle) / (spread or 1.0)",
        "scaled = (own - middle) / (spread or 1.5)",
    ): "without spread all values are the middle, and 0 is divided",
    (
        "clean/calibrate.py",
        "if gained <= 1e-10 * (1 + abs(value)):",
        "if gained <= 1e-10 * (0 + abs(value)):",
    ): "one step more after the last that matters",
    (
        "clean/vote.py",
        "found[start:start + CHUNK] = np.where(total > 0, said[rows].sum(axis=1) / total, np.nan)",
        "found[start:start + CHUNK] = np.where(total >= 0, said[rows].sum(axis=1) / total, np.nan)",
    ): "0 / 0 is NaN as well",
    (
        "clean/relabel.py",
        "filled = np.concatenate([np.nan_to_num(labels), np.zeros((1, labels.shape[1]), dtype=labels.dtype)])",
        "filled = np.concatenate([np.nan_to_num(labels), np.zeros((2, labels.shape[1]), dtype=labels.dtype)])",
    ): "-1 asks for the last row of zeros, of one or of two",
    (
        "clean/bags.py",
        "READ = 2 ** 22",
        "READ = 2 * 22",
    ): "how much is read at a time, which only speed depends on",
    (
        "clean/bags.py",
        "if device.type == 'cuda' and elsewhere and (8 * np.prod(values.shape, dtype=np.float64) <= memory):",
        "if device.type == 'cuda' and elsewhere and (7 * np.prod(values.shape, dtype=np.float64) <= memory):",
    ): "where values are kept, which matters for the speed of a GPU",
    (
        "clean/features.py",
        "BLOCK = 1 << 20",
        "BLOCK = 1 << 21",
    ): "rows at a time, which only speed depends on",
    (
        "clean/features.py",
        "BLOCK = 1 << 20",
        "BLOCK = 2 << 20",
    ): "rows at a time, which only speed depends on",
    (
        "clean/features.py",
        "BLOCK = 1 << 20",
        "BLOCK = 0 << 20",
    ): "one row at a time, which only speed depends on",
    (
        "clean/features.py",
        "step = max(1, BLOCK // features.shape[1])",
        "step = max(2, BLOCK // features.shape[1])",
    ): "rows at a time, where one fills a block",
    ("clean/features.py", "...", "pass"): "the body of a protocol, which nobody calls",
    (
        "clean/bags.py",
        "bags = replace(bags, centre=(total / (len(bags) * bags.bag)).float())",
        "bags = replace(bags, centre=(total / (len(bags) / bags.bag)).float())",
    ): "the search is exact wherever the middle is; only its speed depends on that",
    (
        "clean/heads.py",
        "start[-1] = logistic(np.asarray(usual, dtype=np.float64))",
        "start[-0] = logistic(np.asarray(usual, dtype=np.float64))",
    ): "where the search for the one minimum begins",
    (
        "clean/rounded.py",
        "vectors[..., width:width + 3] = 1",
        "vectors[..., width:width + 4] = 1",
    ): "the fourth is written anew two lines below",
    (
        "clean/rounded.py",
        "products = products.amin(dim=dim, keepdim=True) if products.shape[dim] > 1 else products",
        "products = products.amin(dim=dim, keepdim=True) if products.shape[dim] >= 1 else products",
    ): "the least of one is that one",
    (
        "describe/descriptors.py",
        "def extract(learner: DescriptorLearner, networks: Sequence[Network], images: Images, path: Path, "
        "batch: int=256) -> None:",
        "def extract(learner: DescriptorLearner, networks: Sequence[Network], images: Images, path: Path, "
        "batch: int=257) -> None:",
    ): "images at a time, which only speed depends on",
    (
        "describe/descriptors.py",
        "def extract(learner: DescriptorLearner, networks: Sequence[Network], images: Images, path: Path, "
        "batch: int=256) -> None:",
        "def extract(learner: DescriptorLearner, networks: Sequence[Network], images: Images, path: Path, "
        "batch: int=255) -> None:",
    ): "images at a time, which only speed depends on",
    (
        "describe/written.py",
        "def write_all(path: Path, images: Images, networks: Sequence[Network], ask: Callable[[Tensor], Tensor], "
        "one: tuple[int, ...], *, what: str, stored: Stored='float32', batch: int=256) -> None:",
        "def write_all(path: Path, images: Images, networks: Sequence[Network], ask: Callable[[Tensor], Tensor], "
        "one: tuple[int, ...], *, what: str, stored: Stored='float32', batch: int=255) -> None:",
    ): "images at a time, which only speed depends on",
    (
        "clean/graph.py",
        "ranks[image] = ranks.get(image, 0) + rank",
        "ranks[image] = ranks.get(image, 1) + rank",
    ): "one more for every image, whose order stays",
    (
        "clean/reviewed.py",
        "fits[place] = np.where(which[rows], logs, 0).sum(axis=0)",
        "fits[place] = np.where(which[rows], logs, 1).sum(axis=0)",
    ): "the same is added to every fit",
    (
        "clean/transition.py",
        "decided = softmax(undone(scores), axis=1).max(axis=1, initial=0) >= DECIDED",
        "decided = softmax(undone(scores), axis=1).max(axis=1, initial=0) > DECIDED",
    ): "no image is decided to the last digit",
    (
        "clean/transition.py",
        "matrix = np.full((count, count), wrong / max(count - 1, 1))",
        "matrix = np.full((count, count), wrong / max(count - 1, 2))",
    ): "where the search begins",
    (
        "clean/transition.py",
        "spread = float(evidence.std()) if evidence.size else 0.0",
        "spread = float(evidence.std()) if evidence.size else 1.0",
    ): "nothing is fitted without evidence",
    (
        "clean/vote.py",
        "CHUNK = 2 ** 22",
        "CHUNK = 1 ** 22",
    ): "rows at a time, which only speed depends on",
    (
        "clean/vote.py",
        "CHUNK = 2 ** 22",
        "CHUNK = 2 ** 21",
    ): "rows at a time, which only speed depends on",
    (
        "clean/posterior.py",
        "own = np.full(len(given), share if share < 1 else 1.0)",
        "own = np.full(len(given), share if share < 2 else 1.0)",
    ): "a share is 1 at most",
    (
        "clean/one_label.py",
        "labelled = np.asarray((labels.values >= 0.5).any(axis=1))",
        "labelled = np.asarray((labels.values >= 0.75).any(axis=1))",
    ): "of classes that exclude each other one is 1 and the others are 0",
    (
        "clean/calibrate.py",
        "curvature = design * (chance * (1 - chance)) @ design.T + np.diag(pull)",
        "curvature = design * (chance * (1 - chance)) @ design.T - np.diag(pull)",
    ): "another way to the same minimum",
    (
        "clean/heads.py",
        "part = scaled[::-(-len(scaled) // FITTED)]",
        "part = scaled[::-len(scaled) // FITTED]",
    ): "as many rows, counted from the end",
    (
        "clean/rounded.py",
        "if device.type != 'cuda' or torch.cuda.get_device_capability(device) < (8, 0):",
        "if device.type != 'cuda' or torch.cuda.get_device_capability(device) < (8, 1):",
    ): "needs a GPU",
    (
        "clean/rounded.py",
        "return products.amin(dim=(0, 2))",
        "return products.amin(dim=(0, 1))",
    ): "needs a GPU",
    (
        "clean/rounded.py",
        "if products.is_cuda:",
        "if not products.is_cuda:",
    ): "two ways to the same, of a GPU and a CPU",
    (
        "clean/bags.py",
        "if device.type == 'cuda' and elsewhere and (8 * np.prod(values.shape, dtype=np.float64) <= memory):",
        "if device.type == 'cuda' or elsewhere or 8 * np.prod(values.shape, dtype=np.float64) <= memory:",
    ): "where values are kept, which matters for the speed of a GPU",
    (
        "describe/descriptors.py",
        "if self.vectors.device != flat.device or self.vectors.dtype != flat.dtype:",
        "if self.vectors.device != flat.device and self.vectors.dtype != flat.dtype:",
    ): "needs a GPU: on one device the types agree",
    (
        "describe/descriptors.py",
        "with progress.bar('descriptors of all images', rows.stop - rows.start) as advance:",
        "with progress.bar('descriptors of all images', rows.stop + rows.start) as advance:",
    ): "the length of a progress bar; rows start at 0 in one process",
}

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}


@dataclass(frozen=True)
class Mutant:
    """One change of a module.

    Attributes:
        function: Where it is, such as Rates.__post_init__; "" at the top.
        before: The first line of the statement that is changed; likewise `after`.
        tree: The whole module with the change.
    """

    function: str
    line: int
    before: str
    after: str
    tree: ast.Module


def mutants_of(text: str) -> list[Mutant]:
    """Every mutant of a module, in the order of its text."""
    tree = ast.parse(text)
    found = []
    for number, place in enumerate(_places(tree)):
        for change in range(len(list(_changes(place.node)))):
            mutated = copy.deepcopy(tree)
            twin = _places(mutated)[number]
            replacement = list(_changes(twin.node))[change]
            before = _line(twin.statement)
            _replace(mutated, twin.node, replacement)
            after = _line(replacement if twin.node is twin.statement else twin.statement)
            ast.fix_missing_locations(mutated)
            found.append(Mutant(place.function, place.node.lineno, before, after, mutated))
    return sorted(found, key=lambda mutant: mutant.line)


@dataclass(frozen=True)
class Place:
    """A node that may be changed, with the function and the statement that it stands in."""

    node: ast.expr | ast.stmt
    function: str
    statement: ast.stmt


def _places(tree: ast.Module) -> list[Place]:
    """Statements and expressions that may be changed: no words, types, decorators or what an error says."""
    found = []

    def visit(node: ast.AST, function: str, statement: ast.stmt | None) -> None:
        if isinstance(node, ast.stmt):
            statement = node
        if isinstance(node, ast.stmt | ast.expr) and statement is not None:
            found.append(Place(node, function, statement))
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            function = f"{function}.{node.name}".lstrip(".")
        for child in _children(node):
            visit(child, function, statement)

    visit(tree, "", None)
    return found


def _children(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Import | ast.ImportFrom | ast.JoinedStr | ast.Raise):
        return
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.Assign) and _is_type(node.value):
        return
    skipped = {"decorator_list", "annotation", "returns", "bases"}
    for name, value in ast.iter_fields(node):
        if name in skipped:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_words(child):
                yield child


def _is_words(node: ast.AST) -> bool:
    inner = node.value if isinstance(node, ast.Expr) else node
    return isinstance(inner, ast.Constant) and isinstance(inner.value, str)


def _is_type(node: ast.expr) -> bool:
    """Such as NDArray[np.float32] or tuple[int, ...], at the top of a module."""
    return isinstance(node, ast.Subscript) and ast.unparse(node.value) in {
        "NDArray",
        "tuple",
        "list",
        "dict",
        "Callable",
    }


def _changes(node: ast.expr | ast.stmt) -> Iterator[ast.expr | ast.stmt]:
    """What may stand in place of a node, each a small error."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARED:
        yield ast.Compare(node.left, [COMPARED[type(node.ops[0])](), *node.ops[1:]], node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in COMPUTED:
        yield ast.BinOp(node.left, COMPUTED[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield ast.BoolOp(other, node.values)
    elif isinstance(node, ast.UnaryOp):
        if not isinstance(node.operand, ast.Constant):
            yield node.operand
    elif isinstance(node, ast.Constant):
        yield from _constants(node.value)
    elif isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body)
    elif isinstance(node, ast.If):
        yield ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
    elif isinstance(node, ast.AugAssign) and type(node.op) in COMPUTED:
        yield ast.AugAssign(node.target, COMPUTED[type(node.op)](), node.value)
        yield ast.Pass()
    elif isinstance(node, ast.Expr | ast.Raise):
        yield ast.Pass()
    elif isinstance(node, ast.Continue):
        yield ast.Break()
    elif isinstance(node, ast.Break):
        yield ast.Continue()
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        yield ast.Pass()  # without the name of its own there is nothing that could fail for want of it


def _constants(value: object) -> Iterator[ast.expr]:
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int):
        yield ast.Constant(value + 1)
        if value > 0:
            yield ast.Constant(value - 1)
    elif isinstance(value, float):
        yield ast.Constant(value * 1.5 if value else 1.0)


def _replace(tree: ast.Module, old: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
                return
            if isinstance(value, list):
                for number, child in enumerate(value):
                    if child is old:
                        value[number] = new
                        return
    raise LookupError("The node is not in the tree.")


def _line(node: ast.AST) -> str:
    """A statement as one line, of a block its head alone."""
    lines = ast.unparse(node).splitlines()
    return next(line for line in lines if not line.startswith("@"))
