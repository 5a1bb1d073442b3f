"use strict";
const { address } = document.body.dataset;
const image = /^#image=([^&]*)$/.exec(location.hash);
if (address) location.replace(image ? `${address}&image=${image[1]}` : address);
else {
  const folder = decodeURIComponent(location.pathname).replace(/\/[^/]*$/, "").replace(/^\/(?=[A-Za-z]:)/, "");
  const plain = /^[\w@%+=:,./-]+$/.test(folder) ? folder : `'${folder.replaceAll("'", "'\\''")}'`;
  document.getElementById("command").textContent = `bomd review ${plain} --open`;
}
