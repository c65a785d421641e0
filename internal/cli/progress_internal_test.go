package cli

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"
)

// A command that takes long says what it does, where nobody sees a bar as well: after two seconds, then every ten.
func TestProgressInLines(t *testing.T) {
	var out bytes.Buffer
	var seconds atomic.Int64
	begin := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	p := terminal{err: &out, now: func() time.Time {
		return begin.Add(time.Duration(seconds.Load()) * time.Second)
	}}.progress("kubenergy compare", "trials")
	at := func(second int64) {
		seconds.Store(second)
		p.show()
	}
	read := p.doing("reading files")
	at(1)
	at(2)
	at(3)
	read()
	learnt := p.doing("making the forecasts of history for DE")
	p.doing("making the forecasts of history for FR")()
	p.tell(4, 24) // of which some were done before
	at(11)
	at(12)
	learnt()
	seconds.Store(21)
	p.tell(14, 24)
	at(22)
	p.tell(24, 24)
	at(33)
	p.close()
	p.close()
	want := `kubenergy compare: reading files
kubenergy compare: 4 of 24 trials, making the forecasts of history for DE
kubenergy compare: 14 of 24 trials, 19s left
kubenergy compare: 24 of 24 trials
`
	if out.String() != want {
		t.Errorf("told\n%s\nwant\n%s", out.String(), want)
	}
}
