package forward

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
)

// decoded is the body of an answer to a batch, of which at most readBytes were read, and as many are returned. All requests ask for identity: an
// answer that is coded all the same, in a way that cannot be undone here, leaves a doubt.
func decoded(body []byte, coding string) (_ []byte, doubt string) {
	coding = strings.ToLower(strings.TrimSpace(coding))
	if len(body) == 0 || coding == "" || coding == "identity" {
		return body, ""
	}
	doubt = "the answer to the batch has a content-encoding that was not asked for and cannot be read: " + coding[:min(len(coding), 100)]
	if coding != "gzip" && coding != "x-gzip" {
		return body, doubt
	}
	zipped, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return body, doubt + ": " + oneLine(err)
	}
	plain, err := io.ReadAll(io.LimitReader(zipped, readBytes))
	if err != nil {
		return body, doubt + ": " + oneLine(err)
	}
	return plain, ""
}
