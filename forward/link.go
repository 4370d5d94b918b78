package forward

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

const (
	replyBuffer   = 4 << 10               // of what is read; net/http takes the same, and with it bounds trailers
	writeEndsWait = 50 * time.Millisecond // after the answer, for a large request to have been written
)

// link is one connection to the app over plain HTTP/1.1, for one request at a time. The goroutine that forwards writes the
// request and reads the answer itself: there is no other, but for what does not fit into the socket's buffer at once, since
// an app may answer before it has read everything.
type link struct {
	nc   net.Conn
	raw  syscall.RawConn // nil: what nc is cannot be told without waiting
	r    *bufio.Reader   // of the link itself
	used int             // requests carried before
	idle time.Time       // since when

	// The request under way.
	keeps     int    // bytes of the answer's body that are returned
	out, more []byte // to be written: the head with the start of the body, and the rest of it
	sent      int    // of both
	began     bool   // writing
	left      bool   // nothing was sent, as the app had closed it
	sendErr   error
	sending   chan struct{} // closed when the goroutine that writes the rest has ended; nil if there is none
	step      func(fd uintptr) bool
	limit     int64 // of what may still be read

	// The watch: deadlines, and the end of the caller's context.
	until   time.Time       // when the time is over
	bounded bool            // nc has a read deadline: until, or earlier
	watched <-chan struct{} // of the context that interrupt is registered with
	unwatch func() bool

	mu          sync.Mutex
	active      <-chan struct{} // of the context whose end interrupts
	interrupted bool
}

func newLink(nc net.Conn) *link {
	l := &link{nc: nc, raw: rawOf(nc)}
	l.r = bufio.NewReaderSize(l, replyBuffer)
	l.step = l.start
	return l
}

// carry sends a request and reads the answer to it. keep says whether the link can carry another; if not, it is closed.
// Without anything sent the error is errUnsent, unless time is over or ctx ended.
func (l *link) carry(ctx context.Context, req *http.Request, out, more []byte, until time.Time) (r reply, start []byte, keep bool, err error) {
	l.out, l.more, l.sent, l.began, l.left, l.sendErr = out, more, 0, false, false, nil
	l.limit, l.until = headerBytes, until
	l.watch(ctx)
	if err = l.send(); err == nil {
		r, start, keep, err = l.receive(req)
	}
	keep = l.end(keep && err == nil)
	l.out, l.more = nil, nil
	return r, start, keep, err
}

// end is the end of a request. Where the link can carry no other it closes it. The goroutine that writes has then ended.
func (l *link) end(keep bool) bool {
	keep = keep && l.r.Buffered() == 0 && l.written()
	l.mu.Lock()
	l.active = nil
	keep = keep && !l.interrupted
	l.mu.Unlock()
	if !keep {
		l.close()
	}
	if l.sending != nil {
		<-l.sending
		l.sending = nil
	}
	l.used++
	return keep
}

// written reports whether the whole request was written, or is in a moment.
func (l *link) written() bool {
	if l.sending != nil {
		timer := time.NewTimer(writeEndsWait)
		defer timer.Stop()
		select {
		case <-l.sending:
		case <-timer.C:
			return false
		}
	}
	return l.sendErr == nil
}

func (l *link) close() {
	if l.unwatch != nil {
		l.unwatch()
	}
	_ = l.nc.Close()
}
