package dedupe

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"time"
)

// Key identifies what is remembered: the first 16 bytes of a SHA-256, so that an entry's size does not depend on what a
// publisher chose as an id.
type Key [16]byte

// String is the key in capitals and digits, 26 of them: a name that a bucket takes.
func (k Key) String() string { return keyText.EncodeToString(k[:]) }

var keyText = base32.StdEncoding.WithPadding(base32.NoPadding)

// Scope is one incarnation of a stream as one consumer sees it. Keys of different scopes differ: a stream that was deleted and
// made again starts a new life.
type Scope struct {
	sum [sha256.Size]byte
}

// The kinds of input that are hashed. They keep a message's key from ever being that of an id.
const (
	kindScope   = 1
	kindMessage = 2
	kindID      = 3
)

// NewScope is the scope of a consumer on the stream that was created at the time given.
func NewScope(stream string, created time.Time, consumer string) Scope {
	b := []byte{kindScope}
	b = binary.BigEndian.AppendUint64(b, uint64(len(stream)))
	b = append(b, stream...)
	b = appendTime(b, created)
	b = binary.BigEndian.AppendUint64(b, uint64(len(consumer)))
	b = append(b, consumer...)
	return Scope{sum: sha256.Sum256(b)}
}

// Message is the key of the message itself: its stream sequence and the time it was stored.
func (s Scope) Message(seq uint64, stored time.Time) Key {
	var buf [sha256.Size + 32]byte
	b := append(buf[:0], kindMessage)
	b = append(b, s.sum[:]...)
	b = binary.BigEndian.AppendUint64(b, seq)
	b = appendTime(b, stored)
	return truncate(sha256.Sum256(b))
}

// ID is the key of an id that the publisher chose.
func (s Scope) ID(id string) Key {
	// Longer ids are hashed a piece at a time, each with the sum of those before, which needs no memory. The length at the
	// front makes the pieces unambiguous.
	var buf [256]byte
	b := append(buf[:0], kindID)
	b = append(b, s.sum[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(len(id)))
	for {
		n := min(len(id), len(buf)-len(b))
		b = append(b, id[:n]...)
		id = id[n:]
		sum := sha256.Sum256(b)
		if id == "" {
			return truncate(sum)
		}
		b = append(buf[:0], sum[:]...)
	}
}

func truncate(sum [sha256.Size]byte) Key {
	return Key(sum[:len(Key{})])
}

// appendTime appends an instant: seconds and nanoseconds, as Unix nanoseconds alone would overflow for the zero time.
func appendTime(b []byte, t time.Time) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(t.Unix()))
	return binary.BigEndian.AppendUint32(b, uint32(t.Nanosecond()))
}
