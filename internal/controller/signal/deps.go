package signal

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/kubenergy/kubenergy/internal/controller/dial"
)

// Deps is what keepers need of the world.
type Deps struct {
	Keys    dial.KeyReader   // nil: sources with keys fail
	Calls   Budget           // needed by sources that ask others
	Data    string           // folder of files; "": file sources fail
	Reach   Reach            // the zero value: the public internet over HTTPS
	Clock   func() time.Time // nil: time.Now
	Log     *slog.Logger     // nil: silence
	Metrics *Metrics         // nil: none
}

// Budget counts requests. One that is to survive restarts and to hold for all replicas together is kept outside of the
// process. Where it cannot be reached, nothing is asked.
type Budget interface {
	// Reserve takes one request out of the budget of a source, which may make perHour in any hour; where there is
	// none left, it says when to ask again.
	Reserve(ctx context.Context, source string, perHour int, now time.Time) (granted bool, next time.Time, err error)
	// Block has Reserve refuse a source until then. The last word counts, also where it is an earlier time.
	Block(ctx context.Context, source string, until, now time.Time) error
}

func (d Deps) withDefaults() Deps {
	if d.Clock == nil {
		d.Clock = time.Now
	}
	d.Log = cmp.Or(d.Log, slog.New(slog.DiscardHandler))
	if d.Metrics == nil {
		d.Metrics = NewMetrics(d.Clock)
	}
	return d
}
