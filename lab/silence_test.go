package lab

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

func TestSilenceIsBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		quiet := sayThatItLives(&out, "something is starting")
		time.Sleep(2*silence + time.Second)
		quiet()
		time.Sleep(time.Hour)
		const want = "something is starting, for 5 s now\nsomething is starting, for 10 s now\n"
		if out.String() != want {
			t.Errorf("%q, want %q", &out, want)
		}
	})
}
