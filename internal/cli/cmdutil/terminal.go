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

// UsageError is a mistake of the user: wrong flags, or files that cannot be read as what they are said to be.
type UsageError struct{ error }

// NewUsageError returns err as an error that is the fault of the command line: the exit code is 2.
func NewUsageError(err error) error { return UsageError{err} }

func (e UsageError) Unwrap() error { return e.error }

// MeantCommand asks for the command that was meant, where one is near.
func MeantCommand(parent *cobra.Command, typed string) string {
	return spelling.DidYouMean(typed, sliceutil.Map(parent.Commands(), (*cobra.Command).Name))
}

// Terminal is what a command knows of where it writes.
type Terminal struct {
	Name     string // of the program, as people type it
	Args     []string
	Env      []string
	Out, Err io.Writer
	Now      func() time.Time
	After    func(time.Duration) <-chan time.Time
}

// Print writes a document to standard output.
func (t Terminal) Print(d report.Document, format string) error { return t.PrintTo("", d, format) }

// PrintTo writes a document into a file; "": to standard output. It writes all of it, or nothing.
func (t Terminal) PrintTo(file string, d report.Document, format string) error {
	var b bytes.Buffer
	if err := report.Write(&b, d, format, file == "" && t.colours(t.Out)); err != nil {
		return err
	}
	if file == "" {
		_, err := t.Out.Write(b.Bytes())
		return err
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil { //nolint:gosec // for all who may read the folder
		return err
	}
	fmt.Fprintln(t.Err, "wrote", file)
	return nil
}

// colours reports whether w is a terminal that shows colours, and NO_COLOR is not set.
func (t Terminal) colours(w io.Writer) bool {
	return t.Getenv("NO_COLOR") == "" && t.Getenv("TERM") != "dumb" && IsTerminal(w)
}

// IsTerminal reports whether w is a file that is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// usualWidth is that of a terminal whose width is unknown.
const usualWidth = 80

// Width is how many columns there are to write on.
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
