#!/usr/bin/env python3
"""Publishes messages to a JetStream stream, which is made if it is missing. Standard library only.

    python3 examples/publish.py orders.new '{"id": 1}' '{"id": 2}'

A stand-in for the nats command line tool, for trying out the sidecar. It speaks just enough of the NATS protocol for a
server without TLS and without users.
"""
import argparse
import json
import socket
import sys


class Nats:
    """One connection, one request at a time."""

    def __init__(self, host, port):
        self.socket = socket.create_connection((host, port), timeout=10)
        self.lines = self.socket.makefile("rb")
        self.lines.readline()  # INFO
        self.send(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB answers.> 1\r\n')

    def send(self, data):
        self.socket.sendall(data)

    def request(self, subject, body, headers=None):
        inbox = b"answers.1"
        if headers:
            block = b"NATS/1.0\r\n" + b"".join(f"{k}: {v}\r\n".encode() for k, v in headers.items()) + b"\r\n"
            self.send(b"HPUB %s %s %d %d\r\n%s%s\r\n" % (subject.encode(), inbox, len(block), len(block) + len(body), block, body))
        else:
            self.send(b"PUB %s %s %d\r\n%s\r\n" % (subject.encode(), inbox, len(body), body))
        while True:
            line = self.lines.readline().split()
            if not line:
                sys.exit("the server closed the connection")
            if line[0] == b"PING":
                self.send(b"PONG\r\n")
            elif line[0] == b"-ERR":
                sys.exit(b" ".join(line).decode())
            elif line[0] in (b"MSG", b"HMSG"):
                data = self.lines.read(int(line[-1]) + 2)
                if line[0] == b"HMSG":
                    sys.exit(f"no answer to {subject}: is JetStream on, and does a stream listen on it?")
                answer = json.loads(data)
                if error := answer.get("error"):
                    if error.get("err_code") == 10058:  # a stream of this name is there, and differs
                        return answer
                    sys.exit(f"{subject}: {error['description']}")
                return answer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="127.0.0.1:4222", help="host:port (default %(default)s)")
    parser.add_argument("--stream", default="ORDERS", help="stream to make if it is missing (default %(default)s)")
    parser.add_argument("--subjects", default="orders.>", help="subjects of that stream (default %(default)s)")
    parser.add_argument("--id", help="Nats-Msg-Id of the message; with several messages -1, -2, ... is added")
    parser.add_argument("subject")
    parser.add_argument("body", nargs="*")
    args = parser.parse_args()

    host, _, port = args.server.removeprefix("nats://").partition(":")
    nats = Nats(host, int(port or 4222))
    stream = {"name": args.stream, "subjects": [args.subjects], "storage": "file", "num_replicas": 1}
    nats.request(f"$JS.API.STREAM.CREATE.{args.stream}", json.dumps(stream).encode())
    for n, body in enumerate(args.body, 1):
        headers = {"Nats-Msg-Id": args.id if len(args.body) == 1 else f"{args.id}-{n}"} if args.id else None
        ack = nats.request(args.subject, body.encode(), headers)
        print(f"stored in {ack['stream']} as #{ack['seq']}" + (", a duplicate" if ack.get("duplicate") else ""))


main()
