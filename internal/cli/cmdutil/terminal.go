// Package cmdutil provides helpers shared by commands for arguments, terminal, cluster, controller, and progress.
package cmdutil

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
	"github.com/kubenergy/kubenergy/internal/spelling"
)

// UsageError is an error caused by the user, such as invalid flags or invalid files.
type UsageError struct{ error }

// NewUsageError wraps err in a [UsageError], which results in exit code 2. It returns nil if err is nil.
func NewUsageError(err error) error {
	if err == nil {
		return nil
	}
	return UsageError{err}
}

// UsageErrorf returns a [UsageError] with a formatted message.
func UsageErrorf(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

func (e UsageError) Unwrap() error { return e.error }

// MeantCommand returns a suggestion if there is a subcommand with a similar name.
func MeantCommand(parent *cobra.Command, typed string) string {
	return spelling.DidYouMean(typed, sliceutil.Map(parent.Commands(), (*cobra.Command).Name))
}

// Terminal contains the environment of a command.
type Terminal struct {
	Name     string // name of the program as typed by the user
	Args     []string
	Env      []string
	Out, Err io.Writer
	Now      func() time.Time
	After    func(time.Duration) <-chan time.Time
}

// Print writes a document to standard output.
func (t Terminal) Print(d report.Document, format string) error { return t.PrintTo("", d, format) }

// PrintTo writes a document to a file, or to standard output if file is empty. The document is written completely
// or not at all.
func (t Terminal) PrintTo(file string, d report.Document, format string) error {
	var b bytes.Buffer
	if err := report.Write(&b, d, format, file == "" && t.colours(t.Out)); err != nil {
		return err
	}
	if file == "" {
		_, err := t.Out.Write(b.Bytes())
		return err
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil { //nolint:gosec // readable by all users
		return err
	}
	fmt.Fprintln(t.Err, "wrote", file)
	return nil
}

// colours reports whether w is a terminal that supports colours and NO_COLOR is not set.
func (t Terminal) colours(w io.Writer) bool {
	return t.Getenv("NO_COLOR") == "" && t.Getenv("TERM") != "dumb" && IsTerminal(w)
}

// IsTerminal reports whether w is a file that is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// usualWidth is the default width of a terminal.
const usualWidth = 80

// Width returns the number of columns of the terminal.
func (t Terminal) Width() int {
	if f, ok := t.Out.(*os.File); ok {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			return w
		}
	}
	if w, err := strconv.Atoi(t.Getenv("COLUMNS")); err == nil && w > 0 {
		return w
	}
	return usualWidth
}
