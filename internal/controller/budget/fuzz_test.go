package budget

import (
	"encoding/json"
	"math"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// FuzzBudget verifies for an arbitrary EnergyBudget that its period contains the current time, that its status can
// be marshaled, and that no action is carried out before its threshold is reached.
func FuzzBudget(f *testing.F) {
	f.Add([]byte(`{"metadata":{"generation":2},"spec":{"limits":{"energyKWh":100,"carbonGrams":5e4,"cost":{"amount":20,
		"currency":"EUR"}},"period":{"type":"Month","timeZone":"Europe/Berlin"},"scope":{"teams":["red"]},
		"actions":[{"at":
		80,"do":"Notify"},{"do":"HoldNewWork"},{"do":"Annotate","at":50}]},"status":{"observedGeneration":1,"actions":[{
		"at":80,"do":"Notify","time":"2026-06-01T12:00:00Z","attempts":3}]}}`), uint32(120_000), int64(1780315200))
	f.Add([]byte(`{"spec":{"limits":{"energyKWh":0.000001},"period":{"type":"Fixed","from":"2026-06-01T00:00:00Z","to":
		"2026-06-02T00:00:00Z"}}}`), uint32(math.MaxUint32), int64(-1))
	f.Add([]byte(`{"spec":{"period":{"type":"Day","timeZone":"America/Sao_Paulo"}}}`), uint32(0), int64(1540695600))
	f.Fuzz(func(t *testing.T, text []byte, wattHours uint32, unix int64) {
		defer memtest.Limit(t, 100*len(text))()
		b := &v1alpha1.EnergyBudget{}
		l := &b.Spec.Limits
		if json.Unmarshal(text, b) != nil || unix < 0 || unix > endOfTime.Unix() {
			return
		}
		for _, limit := range []*float64{l.EnergyKWh, l.CarbonGrams} {
			if limit != nil && !(*limit >= 1e-6) || l.Cost != nil && !(l.Cost.Amount >= 1e-6) {
				return // rejected by the schema
			}
		}
		now := time.Unix(unix, 0)
		p, err := periodOf(&b.Spec.Period, now)
		fixed := b.Spec.Period.Type == v1alpha1.PeriodFixed
		if err == nil && (!fixed && !p.holds(now) || !p.to.IsZero() && !p.from.Before(p.to)) {
			t.Fatalf("time %v is not in period %+v", now, p)
		}
		if a := p.asked(now); !a.from.Before(a.to) {
			t.Fatalf("invalid query range %+v", a)
		}
		used := energy.Microjoules(wattHours) * 3600 * 1e6
		c := &budgetCase{accountOf(b), b, p, err}
		c.use = &use{Row: ledger.Row{Amount: ledger.Amount{Dynamic: used, Facility: used}}, asOf: now}
		s := new(Engine).statusOf(c, 1)
		due := claim(c, s, now, "me", func(string) bool { return false })
		s.ClosedUntil = closedUntil(s, p)
		setCondition(c, s, now)
		for _, i := range due {
			if a := s.Actions[i]; a.Attempts == 1 && s.Percent < float64(a.At) || err != nil || !p.holds(now) {
				t.Fatalf("action %+v was carried out at %v %% in period %+v", a, s.Percent, p)
			}
		}
		if !(s.Percent >= 0) || s.Conditions[len(s.Conditions)-1].Message == "" ||
			!utf8.ValidString(s.Conditions[len(s.Conditions)-1].Message) {
			t.Fatalf("%+v", s)
		}
		if _, err := json.Marshal(s); err != nil {
			t.Fatalf("marshaling the status: %v", err)
		}
	})
}
