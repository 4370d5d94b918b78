// An app that receives messages from the sidecar. Node's own modules only.
//
//   node examples/node/app.mjs [PORT]
//
// The answer decides what becomes of a message:
//   2xx                              done: acked, and not sent again
//   503, 429 and other 5xx           try again later, after Retry-After if that is longer than the schedule
//   400, 422 and most other 4xx      a bad message: moved to the DLQ, with the reason
import { createServer } from "node:http";

const port = Number(process.argv[2] ?? 8080);
const done = new Set(); // in a real app: a unique key in the database, written in the same transaction as the work

const server = createServer(async (request, response) => {
  if (request.method === "GET") {
    response.writeHead(request.url === "/healthz" ? 200 : 404).end();
    return;
  }
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const h = request.headers;
  const place = `${h["nats-subject"]} #${h["nats-sequence"]}, delivery ${h["nats-num-delivered"]}`;

  let order;
  try {
    order = JSON.parse(Buffer.concat(chunks).toString());
  } catch {
    console.log(`${place}: not JSON`);
    response.writeHead(422, { "Sidecar-Reason": "not JSON" }).end();
    return;
  }
  if (order?.busy && h["nats-num-delivered"] === "1") {
    console.log(`${place}: busy, again in 2 s`);
    response.writeHead(503, { "Retry-After": "2" }).end();
    return;
  }
  if (done.has(h["idempotency-key"])) {
    console.log(`${place}: done before`);
    response.writeHead(204).end();
    return;
  }
  console.log(`${place}: ${JSON.stringify(order)}`);
  done.add(h["idempotency-key"]);
  response.writeHead(204).end();
});

// At a stop, requests that are being worked on may finish.
for (const signal of ["SIGTERM", "SIGINT"]) {
  process.once(signal, () => {
    server.close();
    server.closeIdleConnections();
  });
}

server.listen(port, "127.0.0.1", () => console.log(`listening on http://127.0.0.1:${port}`));
