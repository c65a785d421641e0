package lab

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

func TestSilenceIsBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		quiet := sayThatItLives(&out, "something is starting")
		bubble.Advance(2*silence + time.Second)
		quiet()
		bubble.Advance(time.Hour)
		const want = "something is starting (5 s so far)\nsomething is starting (10 s so far)\n"
		if out.String() != want {
			t.Errorf("output = %q, want %q", &out, want)
		}
	})
}
