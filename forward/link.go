package forward

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	replyBuffer   = 4 << 10               // of what is read; net/http takes the same, and with it bounds trailers
	inlineBytes   = 16 << 10              // of the request that are written together with its head
	writeEndsWait = 50 * time.Millisecond // after the answer, for a large request to have been written
)

var (
	errUnsent     = errors.New("connection was closed before the request was sent")
	errNoReply    = errors.New("connection was closed without an answer")
	errReplyLarge = fmt.Errorf("header of the answer is larger than %d bytes", headerBytes)
)

// link is one connection to the app over plain HTTP/1.1, for one request at a time. The goroutine that forwards writes the
// request and reads the answer itself: there is no other, but for what does not fit into the socket's buffer at once, since
// an app may answer before it has read everything.
type link struct {
	nc   net.Conn
	raw  syscall.RawConn // nil: what nc is cannot be told without waiting
	r    *bufio.Reader   // of the link itself
	used bool            // it carried a request before
	idle time.Time       // since when

	// The request under way.
	out, more []byte // to be written: the head with the start of the body, and the rest of it
	sent      int    // of both
	began     bool   // writing
	sendErr   error
	sending   chan struct{} // closed when the goroutine that writes the rest has ended; nil if there is none
	step      func(fd uintptr) bool
	limit     int64 // of what may still be read
	eof       bool

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
	l.out, l.more, l.sent, l.began, l.sendErr = out, more, 0, false, nil
	l.limit, l.until = headerBytes, until
	l.watch(ctx)
	if err = l.send(); err == nil {
		r, start, keep, err = l.receive(req)
	}
	keep = l.end(keep && err == nil)
	l.out, l.more = nil, nil
	return r, start, keep, err
}

// send writes the request, or as much of it as goes at once, and leaves the rest to a goroutine.
func (l *link) send() error {
	switch {
	case l.raw != nil:
		if err := l.sendRaw(); err != nil {
			return err
		}
	case len(l.more) == 0:
		if err := l.bound(); err != nil {
			return err
		}
		l.began = true
		l.sent, l.sendErr = l.nc.Write(l.out)
	}
	switch {
	case l.sendErr != nil && l.sent == 0 && !errors.Is(l.sendErr, os.ErrDeadlineExceeded):
		return errUnsent
	case l.sendErr != nil && l.sent == 0:
		return l.sendErr
	case l.sendErr == nil && l.sent < len(l.out)+len(l.more):
		if err := l.bound(); err != nil {
			return err
		}
		l.sending = make(chan struct{})
		go l.finish(l.sending)
	}
	return nil // an answer may be there, even if the request could not be written to its end
}

// finish writes what is left of the request.
func (l *link) finish(done chan struct{}) {
	defer close(done)
	left := net.Buffers{l.out[min(l.sent, len(l.out)):], l.more[max(l.sent-len(l.out), 0):]}
	n, err := left.WriteTo(l.nc)
	l.sent, l.sendErr = l.sent+int(n), err
}

// receive reads the answer.
func (l *link) receive(req *http.Request) (r reply, start []byte, keep bool, err error) {
	if _, err := l.r.Peek(1); err != nil {
		if err == io.EOF {
			err = errNoReply
		}
		return r, nil, false, err
	}
	buffered, _ := l.r.Peek(l.r.Buffered())
	r, size := plainReply(buffered)
	if size == 0 || req.Method == http.MethodHead {
		return l.receiveOther(req)
	}
	_, _ = l.r.Discard(size)
	start, whole, err := l.body(r.length)
	return r, start, whole, err
}

// body reads a body of a known length.
func (l *link) body(length int64) (start []byte, whole bool, err error) {
	if length == 0 {
		return nil, true, nil
	}
	if length <= int64(l.r.Buffered()) {
		all, _ := l.r.Peek(int(length))
		start = append(start, all[:min(len(all), keptBytes)]...)
		_, _ = l.r.Discard(int(length))
		return start, true, nil
	}
	l.limit = math.MaxInt64
	body := io.LimitedReader{R: l.r, N: length}
	start, whole, err = drain(&body)
	if whole && body.N > 0 {
		return nil, false, io.ErrUnexpectedEOF
	}
	return start, whole || body.N == 0, err
}

// receiveOther reads an answer of any kind, by net/http.
func (l *link) receiveOther(req *http.Request) (r reply, start []byte, keep bool, err error) {
	var resp *http.Response
	for {
		resp, err = http.ReadResponse(l.r, req)
		if err != nil && l.limit <= 0 {
			err = errReplyLarge
		}
		if err != nil {
			return r, nil, false, err
		}
		if resp.StatusCode < 100 || resp.StatusCode > 199 || resp.StatusCode == http.StatusSwitchingProtocols {
			break
		}
	}
	l.limit = math.MaxInt64
	r, keep = replyOf(resp), true // and its body needs no closing: that would read it to its end
	if resp.ContentLength != 0 && req.Method != http.MethodHead {
		start, keep, err = drain(resp.Body)
	}
	return r, start, keep && !r.closing, err
}

// Read reads from the connection, within the limit. It is for r.
func (l *link) Read(p []byte) (int, error) {
	if l.limit <= 0 {
		return 0, errReplyLarge
	}
	p = p[:min(int64(len(p)), l.limit)]
	n, err := l.nc.Read(p)
	for err != nil && l.extend(err) {
		n, err = l.nc.Read(p)
	}
	l.limit -= int64(n)
	l.eof = l.eof || err == io.EOF
	return n, err
}

// end is the end of a request. Where the link can carry no other it closes it. The goroutine that writes has then ended.
func (l *link) end(keep bool) bool {
	keep = keep && !l.eof && l.r.Buffered() == 0 && l.written()
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
	l.used = true
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
