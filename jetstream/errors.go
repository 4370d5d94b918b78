package jetstream

import (
	"errors"

	"github.com/nats-io/nats.go"
)

// Errors a caller can tell apart with errors.Is.
var (
	// ErrStreamNotFound means that the stream does not exist.
	ErrStreamNotFound = errors.New("stream does not exist")
	// ErrConsumerNotFound means that the durable does not exist.
	ErrConsumerNotFound = errors.New("durable does not exist")
	// ErrNoSource means that the DLQ stream waits to be made until its source stream is there.
	ErrNoSource = errors.New("the source stream is not there yet")
	// ErrRefused means that the durable exists and cannot be served rightly, until it is changed on the server.
	ErrRefused = errors.New("durable cannot be served")
	// ErrNotConnected means that there is no connection to NATS now.
	ErrNotConnected = errors.New("not connected to NATS")
	// ErrDenied means that the permissions of the user do not allow it.
	ErrDenied = errors.New("the user may not do that")
	// ErrUnsure means that a dead letter was sent to the DLQ stream, and it is not known whether it is there.
	ErrUnsure = errors.New("it may be stored all the same")
	// ErrUnpublishable means that the server closes the connection over a message, for its size or the length of its subject: it is not stored.
	ErrUnpublishable = errors.New("it is beyond a limit over which the server closes the connection")
	// ErrDeadLetterTooLarge means that an entry does not fit the server's limits, not even in two parts.
	ErrDeadLetterTooLarge = errors.New("dead letter does not fit the DLQ stream, not even in two parts")
)

// isAway reports whether nats.go says, in one of its ways, that there is no connection now.
func isAway(err error) bool {
	return errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrConnectionReconnecting) || errors.Is(err, nats.ErrDisconnected) ||
		errors.Is(err, nats.ErrConnectionClosed)
}
