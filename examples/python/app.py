#!/usr/bin/env python3
"""An app that receives messages from the sidecar. Standard library only.

    python3 examples/python/app.py [PORT]

The answer decides what becomes of a message:
    2xx                              done: acked, and not sent again
    503, 429 and other 5xx           try again later, after Retry-After if that is longer than the schedule
    400, 422 and most other 4xx      a bad message: moved to the DLQ, with the reason
"""
import json
import signal
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

stopping = threading.Event()
waiting = set()  # connections without a request
done = set()  # in a real app: a unique key in the database, written in the same transaction as the work


def say(text):
    print(text + "\n", end="", flush=True)  # one write: requests come in several threads


class Orders(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keep connections open
    timeout = 10  # seconds for a silent client

    def handle_one_request(self):
        waiting.add(self.connection)
        super().handle_one_request()
        waiting.discard(self.connection)

    def do_GET(self):
        self.answer(200 if self.path == "/healthz" else 404)

    def do_POST(self):
        waiting.discard(self.connection)
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        if len(body) < length:  # it broke off: there is nobody to answer
            self.close_connection = True
            return
        key = self.headers["Idempotency-Key"]
        place = f"{self.headers['Nats-Subject']} #{self.headers['Nats-Sequence']}, delivery {self.headers['Nats-Num-Delivered']}"
        try:
            order = json.loads(body)
        except ValueError as error:
            say(f"{place}: not JSON")
            return self.answer(422, {"Sidecar-Reason": f"not JSON: {error}"})
        fields = order if isinstance(order, dict) else {}
        total = fields.get("total")
        if not isinstance(total, (int, float)):
            total = 0
        if total < 0:
            say(f"{place}: rejected, the total is negative")
            return self.answer(422, {"Sidecar-Reason": "the total is negative"})
        if (fields.get("busy") or total > 180) and self.headers["Nats-Num-Delivered"] == "1":
            say(f"{place}: busy, again in 2 s")  # a large order finds the warehouse busy, at first
            return self.answer(503, {"Retry-After": "2", "Sidecar-Reason": "the warehouse is busy"})
        if key in done:
            say(f"{place}: done before")
            return self.answer(204)
        say(f"{place}: {order}")
        done.add(key)
        self.answer(204)

    def answer(self, status, headers=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", "0")
        if stopping.is_set():
            self.send_header("Connection", "close")  # which ends this connection after the answer
        self.end_headers()

    def log_message(self, *_):
        pass


def hang_up():
    for connection in list(waiting):
        try:
            connection.shutdown(socket.SHUT_RD)
        except OSError:
            pass  # it is closed already


class Server(ThreadingHTTPServer):
    daemon_threads = False  # at a stop, requests that are being worked on may finish


def main():
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8080
    try:
        server = Server(("127.0.0.1", port), Orders)
    except OSError as error:
        sys.exit(f"cannot listen on port {port}: {error.strerror}")

    def stop(*_):
        stopping.set()
        threading.Thread(target=server.shutdown).start()
        threading.Timer(0.5, hang_up).start()  # what is on its way is still answered

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    say(f"listening on http://127.0.0.1:{port}")
    server.serve_forever(poll_interval=0.1)
    server.server_close()  # waits for the requests in work


main()
