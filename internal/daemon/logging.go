package daemon

import (
	"fmt"
	"io"
	"log/slog"
)

// Logging contains the settings of a program's log.
type Logging struct {
	LogFormat string // "json" or "text"
	LogLevel  slog.Level
}

// Validate returns an error if the format is unknown.
func (l *Logging) Validate() error {
	if l.LogFormat != "json" && l.LogFormat != "text" {
		return fmt.Errorf("--log-format is %q: want json or text", l.LogFormat)
	}
	return nil
}

// Logger returns a logger that writes to w with the configured format and level.
func (l *Logging) Logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: l.LogLevel}
	if l.LogFormat == "text" {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}
