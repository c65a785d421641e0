package cli

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
)

// Without a terminal, a long-running command reports its progress after two seconds and then every ten seconds.
func TestProgressInLines(t *testing.T) {
	var out bytes.Buffer
	var seconds atomic.Int64
	begin := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	p := cmdutil.Terminal{Err: &out, Now: func() time.Time {
		return begin.Add(time.Duration(seconds.Load()) * time.Second)
	}}.Progress("kubenergy compare", "trials")
	at := func(second int64) {
		seconds.Store(second)
		p.Show()
	}
	read := p.Doing("reading files")
	at(1)
	at(2)
	at(3)
	read()
	learnt := p.Doing("making the forecasts of history for DE")
	p.Doing("making the forecasts of history for FR")()
	p.Update(4, 24) // some of them were done before
	at(11)
	at(12)
	learnt()
	seconds.Store(21)
	p.Update(14, 24)
	at(22)
	p.Update(24, 24)
	at(33)
	p.Close()
	p.Close()
	want := `kubenergy compare: reading files
kubenergy compare: 4 of 24 trials, making the forecasts of history for DE
kubenergy compare: 14 of 24 trials, 19s remaining
kubenergy compare: 24 of 24 trials
`
	if out.String() != want {
		t.Errorf("told\n%s\nwant\n%s", out.String(), want)
	}
}
