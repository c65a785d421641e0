package fallback

import (
	"context"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubenergy/kubenergy/internal/scheduler/place"
)

// plugin is a KubEnergy plugin that replaces others.
type plugin struct {
	fwk.EnqueueExtensions
	replaces []string
}

func (p plugin) Replaces() []string { return p.replaces }

// fake is a framework with score plugins, which assigns a score by name to each plugin that is not skipped.
type fake struct {
	framework.Framework
	replaces []string
	scores   map[string]int64
	err      bool

	runs [][]string // plugins that scored, by call
}

func (f *fake) EnqueueExtensions() []fwk.EnqueueExtensions {
	return []fwk.EnqueueExtensions{nil, plugin{replaces: f.replaces}}
}

func (f *fake) ListPlugins() *config.Plugins {
	all := &config.Plugins{}
	for name := range f.scores {
		all.Score.Enabled = append(all.Score.Enabled, config.Plugin{Name: name})
	}
	return all
}

func (f *fake) RunScorePlugins(_ context.Context, state fwk.CycleState, _ *v1.Pod,
	_ []fwk.NodeInfo,
) ([]fwk.NodePluginScores, *fwk.Status) {
	var node fwk.NodePluginScores
	var ran []string
	for name, score := range f.scores {
		if !state.GetSkipScorePlugins().Has(name) {
			ran = append(ran, name)
			node.Scores = append(node.Scores, fwk.PluginScore{Name: name, Score: score})
		}
	}
	slices.Sort(ran)
	f.runs = append(f.runs, ran)
	if f.err {
		return nil, fwk.NewStatus(fwk.Error, "planted")
	}
	return []fwk.NodePluginScores{{Name: "other"}, node}, nil
}

func TestWrap(t *testing.T) {
	scores := map[string]int64{place.EnergyName: 100, "Fit": 1, "Image": 1}
	for _, tc := range []struct {
		replaces []string
		want     string // substring of the error
	}{
		{replaces: []string{"Fit", "Image"}},
		{replaces: []string{"Fit", "Fitt"}, want: `KubEnergy replaces ["Fitt"]: want one of the profile's other score ` +
			`plugins, ["Fit" "Image"]`},
		{replaces: []string{place.EnergyName}, want: `replaces ["KubEnergy"]`},
	} {
		s := &scheduler.Scheduler{Profiles: map[string]framework.Framework{
			"p": &fake{replaces: tc.replaces, scores: scores},
		}}
		err := Install(s)
		if tc.want == "" {
			if _, wrapped := s.Profiles["p"].(*profile); err != nil || !wrapped {
				t.Errorf("%q: wrapped %v, error %v", tc.replaces, wrapped, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), "setting up profile p: ") ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: error %v, want %q", tc.replaces, err, tc.want)
		}
	}
	f := &fake{scores: scores}
	if same, err := Wrap(f); err != nil || same != framework.Framework(f) {
		t.Errorf("a profile without replaced plugins is wrapped, error %v", err)
	}
}

func TestRunScorePlugins(t *testing.T) {
	const opinion, silent, failed = 100, -1, 0
	for _, tc := range []struct {
		name    string
		energy  int64
		skipped []string // plugins that skipped at PreScore
		err     bool
		want    []string // plugins that score, by run
	}{
		{name: "an opinion", energy: opinion, want: []string{"KubEnergy Taint"}},
		{name: "an opinion, and another plugin skips", energy: opinion, skipped: []string{"Taint"}, want: []string{"KubEnergy"}},
		{name: "no opinion", energy: silent, want: []string{"Fit Image Taint"}},
		{name: "no opinion, and a replaced plugin skips", energy: silent, skipped: []string{"Fit"}, want: []string{"Image Taint"}},
		{name: "failed after PreScore", energy: failed, want: []string{"KubEnergy Taint", "Fit Image Taint"}},
		{
			name: "failed, and a replaced plugin skips", energy: failed, skipped: []string{"Image"},
			want: []string{"KubEnergy Taint", "Fit Taint"},
		},
		{name: "an error", energy: failed, err: true, want: []string{"KubEnergy Taint"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &fake{
				replaces: []string{"Fit", "Image"}, err: tc.err,
				scores: map[string]int64{place.EnergyName: tc.energy, "Fit": 9, "Image": 9, "Taint": 9},
			}
			wrapped, err := Wrap(f)
			if err != nil {
				t.Fatal(err)
			}
			state, skipped := framework.NewCycleState(), sets.New(tc.skipped...)
			if tc.energy == silent {
				skipped.Insert(place.EnergyName)
			}
			state.SetSkipScorePlugins(skipped)
			scores, status := wrapped.RunScorePlugins(t.Context(), state, nil, nil)
			if status.IsSuccess() == tc.err || (len(scores) == 0) != tc.err {
				t.Errorf("scores %v, status %v", scores, status)
			}
			var got []string
			for _, run := range f.runs {
				got = append(got, strings.Join(run, " "))
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("the plugins %q score, want %q", got, tc.want)
			}
		})
	}
}
