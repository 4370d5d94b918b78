package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// maxFile bounds the size of a configuration file, maxSecret that of a secret's file, in bytes.
const (
	maxFile   = 4 << 20
	maxSecret = 64 << 10
)

var errEmptyFile = errors.New("the file is empty")

// readSecret reads a secret from a file and trims one trailing newline.
func readSecret(name string) (string, error) {
	data, err := readLimited(name, maxSecret)
	if err != nil {
		return "", err
	}
	s := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if s == "" {
		return "", errEmptyFile
	}
	return s, nil
}

func readLimited(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open the file: %w", plainError(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read the file: %w", plainError(err))
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("the file is larger than %d bytes", limit)
	}
	return data, nil
}

// plainError drops the path from an error that is reported with it.
func plainError(err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return p.Err
	}
	return err
}

// readFile parses a configuration file by its extension.
func readFile(name string) (*node, error) {
	data, err := readLimited(name, maxFile)
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", name, err)
	}
	n, err := parse(strings.ToLower(filepath.Ext(name)), data)
	if err != nil {
		where := filepath.Base(name)
		if s := (*syntaxError)(nil); errors.As(err, &s) && s.line > 0 {
			return nil, Faults{{Where: fmt.Sprintf("%s:%d", where, s.line), Why: s.why}}
		}
		return nil, Faults{{Where: where, Why: err.Error()}}
	}
	return n, nil
}

func parse(ext string, data []byte) (*node, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if !utf8.Valid(data) {
		return nil, badSyntax(0, "is not UTF-8 text")
	}
	var n *node
	var err error
	switch ext {
	case ".json":
		n, err = parseJSON(data)
	case ".toml":
		n, err = parseTOML(data)
	default:
		n, err = parseYAML(data)
	}
	if err == nil && n.shape != mapping && n.shape != null {
		err = badSyntax(n.line, "the file is %s at its top and must be a map of keys", n.noun())
	}
	return n, err
}
