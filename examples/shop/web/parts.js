// Reads an answer in parts. `show(body, end)` is called with what is there, and again after each part;
// `end` is given with the last: `{ done: true, partial: [names of what failed] }`.
export async function parts(url, options, show) {
  const headers = { ...options.headers, accept: "application/jsonl" };
  const response = await fetch(url, { ...options, headers });
  if (!response.headers.get("content-type").startsWith("application/jsonl")) {
    const body = await response.json(); // an error, or an answer in one
    if (!response.ok) throw new Error(body.detail ?? body.title);
    show(body, { done: true });
    return body;
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let body;
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("the answer broke off");
    const lines = (text + value).split("\n");
    text = lines.pop();
    for (const line of lines) {
      const part = JSON.parse(line);
      if (part.error) throw new Error(part.error.detail ?? part.error.title);
      if ("body" in part) body = part.body;
      if ("path" in part) put(body, part.path, part.value);
      show(body, part.done ? part : undefined);
      if (part.done) return body;
    }
  }
}

// Puts a value at a JSON pointer (RFC 6901).
function put(body, path, value) {
  const keys = path.split("/").slice(1).map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
  const last = keys.pop();
  keys.reduce((at, key) => at[key], body)[last] = value;
}
