"use strict";

/* A picture on a canvas with window and level, zoom, pan and a heat map laid over it. */
class Viewer {
  constructor(canvas, changed) {
    this.canvas = canvas;
    this.changed = changed;
    this.context = canvas.getContext("2d");
    this.source = null; // pixels as they came
    this.shown = document.createElement("canvas"); // the same through the window
    this.heat = null;
    this.pointers = new Map();
    this.reset();
    new ResizeObserver(() => this.draw()).observe(canvas);
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoomBy(Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
    });
    canvas.addEventListener("pointermove", (event) => this.drag(event));
    for (const name of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(name, (event) => this.pointers.delete(event.pointerId));
    }
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
    canvas.addEventListener("dblclick", () => this.fit());
  }

  reset() {
    this.width = 255;
    this.level = 128;
    this.inverted = false;
    this.apply();
    this.fit();
  }

  fit() {
    this.zoom = 1;
    this.shift = [0, 0];
    this.draw();
  }

  show(picture) {
    const copy = document.createElement("canvas");
    [copy.width, copy.height] = [picture.naturalWidth, picture.naturalHeight];
    const context = copy.getContext("2d", { willReadFrequently: true });
    context.drawImage(picture, 0, 0);
    this.source = context.getImageData(0, 0, copy.width, copy.height);
    [this.shown.width, this.shown.height] = [copy.width, copy.height];
    this.heat = null;
    this.apply();
  }

  overlay(picture) {
    this.heat = picture;
    this.draw();
  }

  clear() {
    this.source = this.heat = null;
    this.draw();
  }

  setWindow(width, level) {
    this.width = Math.min(510, Math.max(2, Math.round(width)));
    this.level = Math.min(255, Math.max(0, Math.round(level)));
    this.apply();
  }

  invert() {
    this.inverted = !this.inverted;
    this.apply();
  }

  apply() {
    if (this.source) {
      const table = new Uint8ClampedArray(256);
      for (let grey = 0; grey < 256; grey += 1) {
        const value = 255 * ((grey - this.level) / this.width + 0.5);
        table[grey] = this.inverted ? 255 - Math.min(255, Math.max(0, value)) : value;
      }
      const { width, height, data } = this.source;
      const copy = new ImageData(width, height);
      for (let at = 0; at < data.length; at += 4) {
        for (let channel = 0; channel < 3; channel += 1) copy.data[at + channel] = table[data[at + channel]];
        copy.data[at + 3] = 255;
      }
      this.shown.getContext("2d").putImageData(copy, 0, 0);
    }
    this.draw();
  }

  zoomBy(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const before = this.zoom;
    this.zoom = Math.min(16, Math.max(0.5, before * factor));
    const centre = [this.canvas.clientWidth / 2, this.canvas.clientHeight / 2];
    const kept = this.zoom / before; // what lies under the pointer stays there
    this.shift = [x, y].map((at, axis) => (at - centre[axis]) * (1 - kept) + this.shift[axis] * kept);
    this.draw();
  }

  drag(event) {
    const last = this.pointers.get(event.pointerId);
    if (!last) return;
    const now = [event.offsetX, event.offsetY];
    const moved = [now[0] - last[0], now[1] - last[1]];
    if (this.pointers.size === 2) {
      const [, other] = [...this.pointers].find(([id]) => id !== event.pointerId);
      const before = Math.hypot(last[0] - other[0], last[1] - other[1]);
      const after = Math.hypot(now[0] - other[0], now[1] - other[1]);
      this.shift = [this.shift[0] + moved[0] / 2, this.shift[1] + moved[1] / 2];
      this.zoomBy(after / Math.max(1, before), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
    } else if (event.shiftKey || event.buttons & 6) {
      this.shift = [this.shift[0] + moved[0], this.shift[1] + moved[1]];
      this.draw();
    } else {
      this.setWindow(this.width + moved[0], this.level - moved[1] / 2);
    }
    this.pointers.set(event.pointerId, now);
  }

  draw() {
    const { canvas, context } = this;
    const density = window.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (canvas.width !== Math.round(width * density) || canvas.height !== Math.round(height * density)) {
      [canvas.width, canvas.height] = [Math.round(width * density), Math.round(height * density)];
    }
    context.setTransform(density, 0, 0, density, 0, 0);
    context.clearRect(0, 0, width, height);
    if (this.source) {
      const scale = Math.min(width / this.source.width, height / this.source.height) * this.zoom;
      const size = [this.source.width * scale, this.source.height * scale];
      const corner = [width / 2 + this.shift[0] - size[0] / 2, height / 2 + this.shift[1] - size[1] / 2];
      context.imageSmoothingEnabled = true;
      context.imageSmoothingQuality = "high";
      context.drawImage(this.shown, ...corner, ...size);
      if (this.heat) context.drawImage(this.heat, ...corner, ...size);
    }
    this.changed(this);
  }
}
