package budget

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

func TestPeriods(t *testing.T) {
	from, to := metav1.NewTime(monday), metav1.NewTime(monday.Add(time.Hour))
	for name, tc := range map[string]struct {
		period   v1alpha1.BudgetPeriod
		now      string
		from, to string // empty if unbounded
		bad      bool
	}{
		"a day": {
			period: v1alpha1.BudgetPeriod{Type: "Day"}, now: "2026-06-03T12:00:00Z",
			from: "2026-06-03T00:00:00Z", to: "2026-06-04T00:00:00Z",
		},
		"start of a day": {
			period: v1alpha1.BudgetPeriod{Type: "Day"}, now: "2026-06-03T00:00:00Z",
			from: "2026-06-03T00:00:00Z", to: "2026-06-04T00:00:00Z",
		},
		"a day in Berlin": {
			period: v1alpha1.BudgetPeriod{Type: "Day", TimeZone: "Europe/Berlin"}, now: "2026-06-03T23:00:00Z",
			from: "2026-06-03T22:00:00Z", to: "2026-06-04T22:00:00Z",
		},
		"a day of 23 hours": {
			period: v1alpha1.BudgetPeriod{Type: "Day", TimeZone: "Europe/Berlin"}, now: "2026-03-29T12:00:00Z",
			from: "2026-03-28T23:00:00Z", to: "2026-03-29T22:00:00Z",
		},
		"a week": {
			period: v1alpha1.BudgetPeriod{Type: "Week"}, now: "2026-06-07T23:59:59Z",
			from: "2026-06-01T00:00:00Z", to: "2026-06-08T00:00:00Z",
		},
		"on Monday": {
			period: v1alpha1.BudgetPeriod{Type: "Week"}, now: "2026-06-08T00:00:00Z",
			from: "2026-06-08T00:00:00Z", to: "2026-06-15T00:00:00Z",
		},
		"a month": {
			period: v1alpha1.BudgetPeriod{Type: "Month"}, now: "2026-12-31T00:00:00Z",
			from: "2026-12-01T00:00:00Z", to: "2027-01-01T00:00:00Z",
		},
		"a month in Auckland": {
			period: v1alpha1.BudgetPeriod{Type: "Month", TimeZone: "Pacific/Auckland"}, now: "2026-05-31T13:00:00Z",
			from: "2026-05-31T12:00:00Z", to: "2026-06-30T12:00:00Z",
		},
		"a year": {
			period: v1alpha1.BudgetPeriod{Type: "Year"}, now: "2028-02-29T00:00:00Z",
			from: "2028-01-01T00:00:00Z", to: "2029-01-01T00:00:00Z",
		},
		"a lifetime": {period: v1alpha1.BudgetPeriod{Type: "Lifetime"}, now: "2026-06-03T12:00:00Z"},
		"fixed": {
			period: v1alpha1.BudgetPeriod{Type: "Fixed", From: &from, To: &to},
			now:    "2026-06-03T12:00:00Z", from: "2026-06-01T12:00:00Z", to: "2026-06-01T13:00:00Z",
		},
		"reversed": {
			period: v1alpha1.BudgetPeriod{Type: "Fixed", From: &to, To: &from},
			now:    "2026-06-03T12:00:00Z", bad: true,
		},
		"without an end": {
			period: v1alpha1.BudgetPeriod{Type: "Fixed", From: &to}, now: "2026-06-03T12:00:00Z",
			bad: true,
		},
		"unknown zone": {
			period: v1alpha1.BudgetPeriod{Type: "Day", TimeZone: "Mars/Base"},
			now:    "2026-06-03T12:00:00Z", bad: true,
		},
		"no file": {
			period: v1alpha1.BudgetPeriod{Type: "Day", TimeZone: "../../etc/passwd"},
			now:    "2026-06-03T12:00:00Z", bad: true,
		},
		"unknown period": {period: v1alpha1.BudgetPeriod{Type: "Aeon"}, now: "2026-06-03T12:00:00Z", bad: true},
		"the local zone": {
			period: v1alpha1.BudgetPeriod{Type: "Day", TimeZone: "Local"}, now: "2026-06-03T12:00:00Z",
			from: "2026-06-03T00:00:00Z", to: "2026-06-04T00:00:00Z",
		},
	} {
		at := func(text string) (t time.Time) {
			if text != "" {
				t, _ = time.Parse(time.RFC3339, text)
			}
			return t
		}
		got, err := periodOf(&tc.period, at(tc.now))
		if (err != nil) != tc.bad || !got.from.Equal(at(tc.from)) || !got.to.Equal(at(tc.to)) {
			t.Errorf("%s: got %v to %v, %v", name, got.from, got.to, err)
		}
	}
}

// TestPeriodsFollowEachOther verifies that a period contains its time and that the next period starts at its end.
func TestPeriodsFollowEachOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := v1alpha1.BudgetPeriod{
			Type: rapid.SampledFrom([]string{"Day", "Week", "Month", "Year"}).Draw(t, "type"),
			TimeZone: rapid.SampledFrom([]string{
				"", "UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Apia", "Australia/Lord_Howe",
			}).Draw(t, "zone"),
		}
		now := time.Unix(rapid.Int64Range(1_500_000_000, 2_500_000_000).Draw(t, "now"), 0)
		a, err := periodOf(&p, now)
		if err != nil {
			t.Fatal(err)
		}
		b, err := periodOf(&p, a.to)
		if err != nil || !a.holds(now) || a.holds(a.to) || !b.from.Equal(a.to) || a == b {
			t.Fatalf("%v is in %v to %v, followed by %v to %v: %v", now, a.from, a.to, b.from, b.to, err)
		}
		if q := a.asked(now); !q.from.Equal(a.from) || !q.to.After(now) || q.to.After(a.to) {
			t.Fatalf("unexpected query range %v to %v", q.from, q.to)
		}
	})
}
