package forward

import (
	"bytes"
	"net/http"
)

// reply is what the head of an answer says.
type reply struct {
	status  int
	length  int64  // of the body
	action  string // every Sidecar-Action, separated by commas
	reason  string
	later   string // Retry-After, the longest
	coding  string // Content-Encoding of the body
	closing bool   // the connection ends with it
}

// plainReply reads the head of an answer, if all of it is in buf and it has the shape that nearly all have: HTTP/1.1, final,
// of a known length, in lines without continuation. It returns how long the head is, or 0 for any other, right or wrong,
// which net/http is to judge. What it takes, net/http takes too and reads in the same way.
func plainReply(buf []byte) (r reply, size int) {
	const version, line = len("HTTP/1.1 "), len("HTTP/1.1 200")
	if len(buf) < line+4 || string(buf[:version]) != "HTTP/1.1 " {
		return r, 0
	}
	for _, c := range buf[version:line] {
		if c < '0' || c > '9' {
			return r, 0
		}
		r.status = r.status*10 + int(c-'0')
	}
	end := bytes.IndexByte(buf, '\n')
	if end < line+1 || buf[end-1] != '\r' || end > line+1 && buf[line] != ' ' || r.status < 200 {
		return r, 0
	}

	r.length = -1
	for rest := buf[end+1:]; ; rest = rest[end+1:] {
		end = bytes.IndexByte(rest, '\n')
		if end < 1 || rest[end-1] != '\r' {
			return r, 0
		}
		if end == 1 {
			size = len(buf) - len(rest) + 2
			break
		}
		if !r.field(rest[:end-1]) {
			return r, 0
		}
	}
	if r.status == http.StatusNoContent || r.status == http.StatusNotModified {
		r.length = 0
	}
	if r.length < 0 {
		return r, 0
	}
	return r, size
}

// field takes in a header line. It returns false for one that is not plain, or frames the answer in any other way than by
// its length.
func (r *reply) field(line []byte) bool {
	colon := bytes.IndexByte(line, ':')
	if colon < 1 {
		return false
	}
	name, value := line[:colon], bytes.Trim(line[colon+1:], " \t")
	for _, c := range name {
		if !token[c] {
			return false
		}
	}
	for _, c := range value {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	switch len(name) {
	case len("Trailer"), len("Connection"), len("Transfer-Encoding"):
		if named(name, "Connection") {
			return named(value, "keep-alive")
		}
		return !named(name, "Trailer") && !named(name, "Transfer-Encoding")
	case len("Content-Encoding"):
		return !named(name, "Content-Encoding") || first(&r.coding, value)
	case len("Retry-After"):
		return !named(name, "Retry-After") || first(&r.later, value)
	case len("Content-Length"): // as long as Sidecar-Action and Sidecar-Reason
		switch {
		case named(name, "Content-Length"):
			return r.measure(value)
		case named(name, "Sidecar-Action"):
			return first(&r.action, value)
		case named(name, "Sidecar-Reason"):
			return first(&r.reason, value)
		}
	}
	return true
}

// first keeps a value, if it is the only one: several are for net/http to read.
func first(kept *string, value []byte) bool {
	if *kept != "" || len(value) == 0 {
		return false
	}
	*kept = string(value)
	return true
}

// measure takes in a Content-Length: one, and of few enough digits to be no number too large.
func (r *reply) measure(value []byte) bool {
	if r.length >= 0 || len(value) < 1 || len(value) > 18 {
		return false
	}
	r.length = 0
	for _, c := range value {
		if c < '0' || c > '9' {
			return false
		}
		r.length = r.length*10 + int64(c-'0')
	}
	return true
}

// named compares header text of ASCII without regard to case.
func named(text []byte, name string) bool {
	if len(text) != len(name) {
		return false
	}
	for i, c := range text {
		if d := name[i]; c != d && (c|0x20 != d|0x20 || c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	return true
}
