package policy

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

func TestReadMarks(t *testing.T) {
	six := time.Date(2026, 6, 1, 18, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name     string
		job      map[string]string
		template map[string]string
		want     Marks
		wantErr  string // substring of the error; empty if there is none
	}{
		{name: "nothing"},
		{name: "other people's", job: map[string]string{"team": "a"}},
		{
			name: "delay", job: map[string]string{v1alpha1.AnnotationAllowedDelay: "6h"},
			want: Marks{Terms: Terms{said: termDelay, AllowedDelay: 6 * time.Hour}},
		},
		{
			name: "plain zero", job: map[string]string{v1alpha1.AnnotationAllowedDelay: "0"},
			want: Marks{Terms: Terms{said: termDelay}},
		},
		{
			name: "finish", job: map[string]string{v1alpha1.AnnotationFinishBy: "2026-06-01T18:00:00Z"},
			want: Marks{FinishBy: six},
		},
		{
			name: "expected", job: map[string]string{v1alpha1.AnnotationExpectedDuration: "90m"},
			want: Marks{Terms: Terms{said: termDuration, ExpectedDuration: 90 * time.Minute}},
		},
		{name: "run now", job: map[string]string{v1alpha1.AnnotationRunNow: "true"}, want: Marks{RunNow: true}},
		{name: "not now", job: map[string]string{v1alpha1.AnnotationRunNow: "false"}},
		{
			name: "released", job: map[string]string{v1alpha1.AnnotationReleasedAt: "whenever"},
			want: Marks{ReleasedBefore: true},
		},
		{
			name: "strategy", job: map[string]string{v1alpha1.AnnotationStrategy: "carbon+window"},
			want: Marks{Terms: Terms{said: termStrategy | termRule, Where: "carbon", When: "window"}},
		},
		{
			name:     "the Job takes precedence over its template",
			job:      map[string]string{v1alpha1.AnnotationAllowedDelay: "1h"},
			template: map[string]string{v1alpha1.AnnotationAllowedDelay: "2h", v1alpha1.AnnotationStrategy: "energy"},
			want: Marks{Terms: Terms{
				said: termDelay | termStrategy, AllowedDelay: time.Hour, Where: "energy",
			}},
		},
		{
			name:     "an invalid annotation of the Job is not replaced by that of the template",
			job:      map[string]string{v1alpha1.AnnotationAllowedDelay: "x"},
			template: map[string]string{v1alpha1.AnnotationAllowedDelay: "2h"},
			wantErr:  `annotation kubenergy.io/allowed-delay is "x"`,
		},
		{name: "number", job: map[string]string{v1alpha1.AnnotationAllowedDelay: "10"}, wantErr: "want a duration"},
		{name: "NaN", job: map[string]string{v1alpha1.AnnotationAllowedDelay: "NaNh"}, wantErr: "want a duration"},
		{name: "negative", job: map[string]string{v1alpha1.AnnotationAllowedDelay: "-1h"}, wantErr: "not negative"},
		{
			name: "for ever", job: map[string]string{v1alpha1.AnnotationAllowedDelay: "9999h"},
			wantErr: "want at most 8784h",
		},
		{
			name: "overflow", job: map[string]string{v1alpha1.AnnotationAllowedDelay: "99999999999h"},
			wantErr: "want a duration",
		},
		{
			name: "other digits", job: map[string]string{v1alpha1.AnnotationAllowedDelay: "٣h"},
			wantErr: "want a duration",
		},
		{
			name: "endless", job: map[string]string{v1alpha1.AnnotationAllowedDelay: strings.Repeat("1h", 1<<17)},
			wantErr: `…": want a duration`,
		},
		{
			name: "zero duration", job: map[string]string{v1alpha1.AnnotationExpectedDuration: "0"},
			wantErr: "want more than 0",
		},
		{
			name: "a day without a time", job: map[string]string{v1alpha1.AnnotationFinishBy: "2026-06-01"},
			wantErr: "want a time",
		},
		{
			name: "the zero time", job: map[string]string{v1alpha1.AnnotationFinishBy: "0001-01-01T00:00:00Z"},
			wantErr: "want a year",
		},
		{
			name: "distant future", job: map[string]string{v1alpha1.AnnotationFinishBy: "9999-01-01T00:00:00Z"},
			wantErr: "want a year",
		},
		{
			name: "perhaps now", job: map[string]string{v1alpha1.AnnotationRunNow: "soon"},
			wantErr: `want "true" or "false"`,
		},
		{
			name: "unknown strategy", job: map[string]string{v1alpha1.AnnotationStrategy: "best"},
			wantErr: "want one of balanced, carbon",
		},
		{
			name: "empty strategy", job: map[string]string{v1alpha1.AnnotationStrategy: ""},
			wantErr: "want one of balanced",
		},
		{
			name: "all mistakes at once", job: map[string]string{
				v1alpha1.AnnotationStrategy: "best", v1alpha1.AnnotationRunNow: "soon",
			},
			wantErr: "annotation kubenergy.io/run-now is \"soon\": want \"true\" or \"false\"\nannotation " +
				"kubenergy.io/strategy",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ReadMarks(tc.job, tc.template)
			switch {
			case tc.wantErr == "" && err != nil:
				t.Fatal(err)
			case tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)):
				t.Fatalf("error %v does not contain %q", err, tc.wantErr)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(Terms{})); diff != "" {
				t.Error(diff)
			}
			if err != nil && len(err.Error()) > 1000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

func FuzzReadMarks(f *testing.F) {
	for _, s := range []string{
		"", "0", "6h", "9999h", "-1h", "NaN", "1e309h", "2026-06-01T18:00:00Z", "true", "carbon+window", "٣h",
		"\xff\xfe", "0001-01-01T00:00:00Z",
	} {
		f.Add(s, s, s, s, s)
	}
	f.Fuzz(func(t *testing.T, delay, finish, expected, now, strategy string) {
		defer memtest.Limit(t, 100*(len(delay)+len(finish)+len(expected)+len(now)+len(strategy)))()
		m, err := ReadMarks(map[string]string{
			v1alpha1.AnnotationAllowedDelay: delay, v1alpha1.AnnotationFinishBy: finish,
			v1alpha1.AnnotationExpectedDuration: expected,
			v1alpha1.AnnotationRunNow:           now, v1alpha1.AnnotationStrategy: strategy,
		})
		if err != nil {
			if m != (Marks{}) {
				t.Errorf("marks are returned with an error: %+v", m)
			}
			if !utf8.ValidString(err.Error()) || len(err.Error()) > 5000 {
				t.Errorf("error is not suitable for an event: %q", err)
			}
			return
		}
		for _, d := range []time.Duration{m.AllowedDelay, m.ExpectedDuration} {
			if d < 0 || d > longest {
				t.Errorf("duration %v is out of range", d)
			}
		}
		if m.FinishBy.IsZero() || m.FinishBy.Year() < 2000 || m.FinishBy.Year() > 2200 {
			t.Errorf("finish %v is out of range", m.FinishBy)
		}
	})
}
