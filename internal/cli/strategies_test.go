package cli_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/internal/cli"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

func TestStrategiesAreListedWithALineEach(t *testing.T) {
	var out, failed bytes.Buffer
	if code := cli.Run(context.Background(), []string{"strategies"}, nil, &out, &failed); code != 0 {
		t.Fatalf("exit code %d: %s", code, failed.String())
	}
	lines := strings.Split(out.String(), "\n")
	wheres, whens := strategy.Names()
	for _, name := range slices.Concat(wheres, whens, strategy.Clusters()) {
		if !slices.ContainsFunc(lines, func(line string) bool {
			first, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			return first == name && strings.TrimSpace(rest) == strategy.Describe(name)
		}) {
			t.Errorf("missing %s with a description in\n%s", name, out.String())
		}
	}
	for _, order := range sched.Orders() {
		if !strings.Contains(out.String(), order) {
			t.Errorf("missing order %s", order)
		}
	}
}
