#!/usr/bin/env python3
"""Publishes messages to a JetStream stream, which is made if it is missing, or shows the last ones of a stream.
Standard library only.

    python3 examples/publish.py orders.new '{"id": 1}' '{"id": 2}'
    python3 examples/publish.py --show ORDERS_DLQ

A stand-in for the nats command line tool (https://github.com/nats-io/natscli), for trying out the sidecar. It speaks
just enough of the NATS protocol for a server without TLS.
"""
import argparse
import base64
import json
import socket
import sys

BODY = 400  # bytes of a body that are shown


class Nats:
    """One connection, one request at a time."""

    def __init__(self, host, port, user=None, password=None):
        self.socket = socket.create_connection((host, port), timeout=10)
        self.lines = self.socket.makefile("rb")
        word, _, info = self.lines.readline().partition(b" ")
        if word != b"INFO":
            sys.exit(f"{host}:{port} is not a NATS server")
        if json.loads(info).get("tls_required"):
            sys.exit("the server asks for TLS, which this script does not speak: use the nats command line tool")
        options = {"verbose": False, "headers": True, "no_responders": True}
        if user is not None:
            options |= {"user": user, "pass": password or ""}
        self.send(b"CONNECT %s\r\nSUB answers.> 1\r\n" % json.dumps(options).encode())

    def send(self, data):
        self.socket.sendall(data)

    def request(self, subject, body=b"", headers=None, accept=()):
        """The answer as JSON. One whose error code is accepted is returned too."""
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
                sys.exit("the server says: " + clean(b" ".join(line[1:])).strip("'"))
            elif line[0] in (b"MSG", b"HMSG"):
                data = self.lines.read(int(line[-1]) + 2)
                if line[0] == b"HMSG":
                    sys.exit(f"no answer to {subject}: is JetStream on, and does a stream listen on it?")
                answer = json.loads(data)
                if (error := answer.get("error")) and error.get("err_code") not in accept:
                    sys.exit(f"{subject}: {error['description']}")
                return answer


def clean(data):
    """Text for a terminal: what is not printable is escaped."""
    text = data.decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def publish(nats, args):
    stream = {"name": args.stream, "subjects": [args.subjects], "storage": "file", "num_replicas": 1}
    differs = 10058  # a stream of this name is there, with another configuration
    nats.request(f"$JS.API.STREAM.CREATE.{args.stream}", json.dumps(stream).encode(), accept=[differs])
    for n, body in enumerate(args.body, 1):
        headers = {"Nats-Msg-Id": args.id if len(args.body) == 1 else f"{args.id}-{n}"} if args.id else None
        ack = nats.request(args.subject, body.encode(errors="surrogateescape"), headers)
        print(f"stored in {ack['stream']} as #{ack['seq']}" + (", a duplicate" if ack.get("duplicate") else ""))


def show(nats, stream, last):
    state = nats.request(f"$JS.API.STREAM.INFO.{stream}")["state"]
    print(f"{stream} holds {state['messages']} message" + "s" * (state["messages"] != 1))
    removed = 10037  # there is no message of this sequence
    found, sequence = [], state["last_seq"]
    while len(found) < min(last, state["messages"]) and sequence >= state["first_seq"]:
        answer = nats.request(f"$JS.API.STREAM.MSG.GET.{stream}", json.dumps({"seq": sequence}).encode(), accept=[removed])
        if "message" in answer:
            found.append(answer["message"])
        sequence -= 1
    for message in reversed(found):
        print(f"\n#{message['seq']}  {clean(message['subject'].encode())}  {message['time']}")
        headers = base64.b64decode(message.get("hdrs", "")).split(b"\r\n")[1:]
        for header in filter(None, headers):
            print("    " + clean(header))
        body = base64.b64decode(message.get("data", ""))
        print("\n    " + clean(body[:BODY]) + (f" ... ({len(body)} bytes)" if len(body) > BODY else ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="127.0.0.1:4222", help="host:port (default %(default)s)")
    parser.add_argument("--user", help="user name, if the server asks for one")
    parser.add_argument("--password", help="password of that user")
    parser.add_argument("--show", metavar="STREAM", help="show the last messages of this stream instead of publishing")
    parser.add_argument("--last", type=int, default=5, metavar="N", help="how many to show (default %(default)s)")
    parser.add_argument("--stream", default="ORDERS", help="stream to make if it is missing (default %(default)s)")
    parser.add_argument("--subjects", default="orders.>", help="subjects of that stream (default %(default)s)")
    parser.add_argument("--id", help="Nats-Msg-Id of the message; with several messages -1, -2, ... is added")
    parser.add_argument("subject", nargs="?", help="where to publish, orders.new for example")
    parser.add_argument("body", nargs="*", help="one message each")
    args = parser.parse_args()
    if args.show and args.subject:
        parser.error("--show publishes nothing: leave out SUBJECT and BODY")
    if not args.show and not args.subject:
        parser.error("name a SUBJECT and at least one BODY, or --show STREAM")
    if not args.show and not args.body:
        parser.error(f"there is nothing to publish to {args.subject}: add at least one BODY, '{{\"id\": 1}}' for example")
    host, _, port = args.server.removeprefix("nats://").partition(":")
    if not (port or "4222").isdigit():
        parser.error(f"--server {args.server}: must be host:port")

    sys.stdout.reconfigure(errors="backslashreplace")
    try:
        nats = Nats(host, int(port or 4222), args.user, args.password)
        if args.show:
            show(nats, args.show, args.last)
        else:
            publish(nats, args)
    except OSError as error:
        sys.exit(f"no NATS server can be used at {args.server}: {error}")


try:
    main()
except KeyboardInterrupt:
    sys.exit(130)
