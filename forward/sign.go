package forward

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"
)

// The headers of a signature (Standard Webhooks 1.0.0). An app may see them in any case.
const (
	headerWebhookID        = "webhook-id"
	headerWebhookTimestamp = "webhook-timestamp"
	headerWebhookSignature = "webhook-signature"
)

const (
	secretPrefix  = "whsec_"
	timeDigits    = 10 // Unix seconds until the year 2286
	leastKey      = 24 // bytes
	mostKey       = 64
	signatureSize = len("v1,") + (sha256.Size+2)/3*4
)

// signer signs requests with shared secrets: v1 of Standard Webhooks. It is safe for concurrent use.
type signer struct {
	keys [][]byte
	pool sync.Pool // of *macs
}

// macs are the hashes of the keys, with room for what they need.
type macs struct {
	hashes []hash.Hash
	sum    [sha256.Size]byte
}

// newSigner makes a signer of secrets that were checked.
func newSigner(secrets []string) *signer {
	s := &signer{}
	for _, secret := range secrets {
		key, _ := signingKey(secret)
		s.keys = append(s.keys, key)
	}
	s.pool.New = func() any {
		m := &macs{}
		for _, key := range s.keys {
			m.hashes = append(m.hashes, hmac.New(sha256.New, key))
		}
		return m
	}
	return s
}

// CheckSigningSecret says what is wrong with a secret, without showing it.
func CheckSigningSecret(secret string) error {
	_, err := signingKey(secret)
	return err
}

func signingKey(secret string) ([]byte, error) {
	text, ok := strings.CutPrefix(secret, secretPrefix)
	if !ok && strings.HasPrefix(secret, "whsk_") {
		return nil, errors.New("is the key of asymmetric signatures; whsec_ and base64 is needed")
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") {
		return nil, errors.New("is not whsec_ followed by base64")
	}
	if len(key) < leastKey || len(key) > mostKey {
		return nil, fmt.Errorf("is the base64 of %d bytes and must be that of %d to %d", len(key), leastKey, mostKey)
	}
	return key, nil
}

// isSignature reports whether a header, by its canonical name, is one of a signature.
func isSignature(canonical string) bool {
	switch canonical {
	case "Webhook-Id", "Webhook-Timestamp", "Webhook-Signature":
		return true
	}
	return false
}

// appendWebhookID appends the id of a message, which stays over attempts and replays: its idempotency key in plain ASCII, and
// without a full stop, which would make two readings of what is signed.
func appendWebhookID(dst []byte, m *Message) []byte {
	if m.batch != nil {
		return append(dst, m.batch.id()...)
	}
	if id, ok := msgID(m.Header); ok && wholeValue(id) {
		return appendEncoded(dst, id, '.')
	}
	var space [128]byte
	return appendEncoded(dst, appendOwnID(space[:0], m, wholeValue(m.Stream)), '.')
}

// reserve appends the header lines of a message's signature, with room for what each attempt has of its own.
func (s *signer) reserve(dst []byte, m *Message) []byte {
	dst = append(dst, headerWebhookID+": "...)
	dst = appendWebhookID(dst, m)
	dst = append(dst, "\r\n"+headerWebhookTimestamp+": "...)
	dst = appendSeconds(dst, time.Time{})
	dst = append(dst, "\r\n"+headerWebhookSignature+": "...)
	for i := range len(s.keys) {
		if i > 0 {
			dst = append(dst, ' ')
		}
		for range signatureSize {
			dst = append(dst, '-')
		}
	}
	return append(dst, "\r\n"...)
}

// fill signs an attempt in the lines that reserve appended, with which lines begins.
func (s *signer) fill(lines []byte, now time.Time, body []byte) {
	id := lines[len(headerWebhookID+": "):]
	end := 0
	for id[end] != '\r' {
		end++
	}
	id, lines = id[:end], id[end+len("\r\n"+headerWebhookTimestamp+": "):]
	seconds := appendSeconds(lines[:0], now)
	lines = lines[timeDigits+len("\r\n"+headerWebhookSignature+": "):]
	s.sign(lines[:0], id, seconds, body)
}

// sign appends the signatures of an attempt, one for each key.
func (s *signer) sign(dst, id, seconds, body []byte) []byte {
	m := s.pool.Get().(*macs)
	for i, h := range m.hashes {
		if i > 0 {
			dst = append(dst, ' ')
		}
		h.Reset()
		h.Write(id)
		h.Write(fullStop)
		h.Write(seconds)
		h.Write(fullStop)
		h.Write(body)
		dst = append(dst, "v1,"...)
		dst = base64.StdEncoding.AppendEncode(dst, h.Sum(m.sum[:0]))
	}
	s.pool.Put(m)
	return dst
}

var fullStop = []byte{'.'}

// signed is a header with the signature of an attempt.
func (s *signer) signed(header http.Header, now time.Time, body []byte) http.Header {
	header = maps.Clone(header)
	seconds := appendSeconds(nil, now)
	header[headerWebhookTimestamp] = []string{string(seconds)}
	header[headerWebhookSignature] = []string{string(s.sign(nil, []byte(header[headerWebhookID][0]), seconds, body))}
	return header
}

// appendSeconds appends a time in Unix seconds, always of the same length.
func appendSeconds(dst []byte, t time.Time) []byte {
	seconds := max(t.Unix(), 0)
	dst = append(dst, "0000000000"...)
	for i := len(dst) - 1; seconds > 0 && i >= len(dst)-timeDigits; i-- {
		dst[i] = byte('0' + seconds%10)
		seconds /= 10
	}
	return dst
}
