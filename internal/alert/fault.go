package alert

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
)

// fault says why a receiver did not take an alert, in words of our own: the library's hold the URL, which is a secret, or the
// host of it.
func fault(resp *http.Response, err error) string {
	switch {
	case err == nil && resp.StatusCode/100 == 3:
		return fmt.Sprintf("status %d; redirects are not followed", resp.StatusCode)
	case err == nil:
		return fmt.Sprintf("status %d", resp.StatusCode)
	case errors.As(err, new(*net.DNSError)):
		return "its host was not found"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), timedOut(err):
		return "timed out"
	case isCertificate(err):
		return "its certificate is not valid"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was closed without an answer"
	}
	if no := syscall.Errno(0); errors.As(err, &no) {
		return no.Error()
	}
	return "no connection, or no valid answer"
}

func timedOut(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

func isCertificate(err error) bool {
	return errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(x509.HostnameError)) ||
		errors.As(err, new(x509.UnknownAuthorityError)) || errors.As(err, new(x509.CertificateInvalidError))
}
