package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/jetsidecar/jetsidecar/internal/terminal"
)

var errDeclined = errors.New("nothing was done")

// unaskedError means that nobody could be asked.
type unaskedError struct{ question string }

func (e *unaskedError) Error() string {
	return fmt.Sprintf("%s There is no terminal to ask on: say so with --yes, or look first with --dry-run", e.question)
}

// confirm asks on the terminal.
func confirm(ctx context.Context, s streams, question string) error {
	in, ok := s.in.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) || !terminal.StyleOf(s.err, s.getenv).Terminal {
		return &unaskedError{question}
	}
	fmt.Fprintf(s.err, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() { answer <- readLine(in) }() // ends with the process if it is not answered
	select {
	case <-ctx.Done():
		return errDeclined
	case line := <-answer:
		if line = strings.ToLower(strings.TrimSpace(line)); line != "y" && line != "yes" {
			return errDeclined
		}
		return nil
	}
}

func readLine(r io.Reader) string {
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		return ""
	}
	return line
}
