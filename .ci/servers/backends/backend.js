// Node as a backend: see ../backend.
const fs = require("fs");
const http = require("http");

const [port, log] = process.argv.slice(2);

function path(url) {
  try {
    return decodeURIComponent(new URL(url, "http://backend").pathname);
  } catch {
    return url;
  }
}

http
  .createServer((request, response) => {
    const body = [];
    request.on("data", (part) => body.push(part));
    request.on("end", () => {
      const seen = {
        target: `${request.method} ${request.url} HTTP/${request.httpVersion}`,
        path: path(request.url),
        headers: request.headers,
        body: Buffer.concat(body).toString("utf8"),
      };
      fs.appendFileSync(log, JSON.stringify(seen) + "\n");
      response.setHeader("content-type", "text/plain");
      response.end("ok");
    });
  })
  .on("clientError", (error, socket) => {
    // Whatever is no request is a sign of one that was split wrongly.
    fs.appendFileSync(log, JSON.stringify({ target: "MALFORMED " + error.code, path: "", headers: {}, body: "" }) + "\n");
    socket.destroy();
  })
  .listen(Number(port), "127.0.0.1");
