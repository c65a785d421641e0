package place

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubenergy/kubenergy/internal/sched"
)

func TestDecodeArgs(t *testing.T) {
	given := DefaultArgs()
	given.Strategy, given.Scope, given.Seed = "energy", All, 7
	given.Weights = sched.Weights{Carbon: 1, Wait: 2.5}
	given.MaxSignalAge = metav1.Duration{Duration: 30 * time.Minute}

	unknown := func(text string) runtime.Object { return &runtime.Unknown{Raw: []byte(text)} }
	for _, tc := range []struct {
		name    string
		obj     runtime.Object
		want    EnergyArgs
		wantErr string
	}{
		{name: "none", want: DefaultArgs()},
		{name: "empty", obj: unknown(""), want: DefaultArgs()},
		{name: "nothing said", obj: unknown(`{}`), want: DefaultArgs()},
		{
			name: "everything said",
			obj: unknown(`{` + header +
				`,"strategy":"energy","scope":"All","seed":7,"weights":{"carbon":1,"wait":2.5},"maxSignalAge":"30m"}`),
			want: given,
		},
		{name: "misspelt option", obj: unknown(`{"stratgy":"carbon"}`), wantErr: "unknown field"},
		{
			name: "a when", obj: unknown(`{"strategy":"energy+window"}`),
			wantErr: `want only energy; use "window" in policies`,
		},
		{
			name: "an order", obj: unknown(`{"strategy":"energy/shortest"}`),
			wantErr: `want only energy; use "shortest" in policies`,
		},
		{name: "mistyped strategy", obj: unknown(`{"strategy":"flow-enrgy"}`), wantErr: "did you mean flow-energy?"},
		{name: "another case", obj: unknown(`{"batch":{"mostpods":1}}`), wantErr: `unknown field "batch.mostpods"`},
		{name: "duplicate field", obj: unknown(`{"seed":1,"seed":2}`), wantErr: `duplicate field "seed"`},
		{
			name: "a number for a duration", obj: unknown(`{"batch":{"timeLimit":200}}`),
			wantErr: `batch.timeLimit is a number: want a string, e.g. "200ms" for a duration`,
		},
		{name: "unknown strategy", obj: unknown(`{"strategy":"best"}`), wantErr: `unknown strategy "best"`},
		{name: "unknown scope", obj: unknown(`{"scope":"Some"}`), wantErr: "want Marked or All"},
		{name: "other version", obj: unknown(`{"apiVersion":"kubescheduler.config.kubenergy.io/v9"}`), wantErr: "v9"},
		{name: "negative age", obj: unknown(`{"maxSignalAge":"-1s"}`), wantErr: "maxSignalAge is -1s"},
		{name: "no duration", obj: unknown(`{"expectedDuration":"0s"}`), wantErr: "expectedDuration is 0s"},
		{name: "too long a wait", obj: unknown(`{"batch":{"gather":"1s"}}`), wantErr: "batch.gather is 1s: want 0 (disabled)"},
		{name: "infinite weight", obj: unknown(`{"weights":{"carbon":1e999}}`), wantErr: "weights"},
		{name: "another object", obj: &v1.Pod{}, wantErr: "unexpected type *v1.Pod"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := decodeArgs(tc.obj)
			switch {
			case tc.wantErr != "":
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("error %v does not contain %q", err, tc.wantErr)
				}
			case err != nil:
				t.Fatal(err)
			default:
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}
