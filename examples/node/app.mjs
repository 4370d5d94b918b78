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

let stopping = false;

function answer(response, status, headers = {}) {
  if (stopping) response.setHeader("Connection", "close");
  response.writeHead(status, headers).end();
}

const server = createServer(async (request, response) => {
  if (request.method === "GET") {
    answer(response, request.url === "/healthz" ? 200 : 404);
    return;
  }
  const chunks = [];
  try {
    for await (const chunk of request) chunks.push(chunk);
  } catch {
    return; // it broke off: there is nobody to answer
  }
  const h = request.headers;
  const place = `${h["nats-subject"]} #${h["nats-sequence"]}, delivery ${h["nats-num-delivered"]}`;

  let order;
  try {
    order = JSON.parse(Buffer.concat(chunks).toString());
  } catch {
    console.log(`${place}: not JSON`);
    answer(response, 422, { "Sidecar-Reason": "not JSON" });
    return;
  }
  if (order?.total < 0) {
    console.log(`${place}: rejected, the total is negative`);
    answer(response, 422, { "Sidecar-Reason": "the total is negative" });
    return;
  }
  // A large order finds the warehouse busy, at first.
  if ((order?.busy || order?.total > 180) && h["nats-num-delivered"] === "1") {
    console.log(`${place}: busy, again in 2 s`);
    answer(response, 503, { "Retry-After": "2", "Sidecar-Reason": "the warehouse is busy" });
    return;
  }
  if (done.has(h["idempotency-key"])) {
    console.log(`${place}: done before`);
    answer(response, 204);
    return;
  }
  console.log(`${place}: ${JSON.stringify(order)}`);
  done.add(h["idempotency-key"]);
  answer(response, 204);
});

// At a stop, requests that are being worked on are answered, and their connections closed.
for (const signal of ["SIGTERM", "SIGINT"]) {
  process.once(signal, () => {
    stopping = true;
    server.close();
    server.closeIdleConnections();
  });
}

server.listen(port, "127.0.0.1", () => console.log(`listening on http://127.0.0.1:${port}`));
