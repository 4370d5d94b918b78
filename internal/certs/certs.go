// Package certs reads certificates from files.
package certs

import (
	"crypto/x509"
	"fmt"
	"os"
)

// Pool reads the certificates, in PEM, that a server's may be signed by. Errors name the file.
func Pool(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificate in it", file)
	}
	return pool, nil
}
