package estimate

import (
	"testing"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// TestPowerByState verifies the power for each power state. An awake idle machine draws its idle power, not its
// sleep power.
func TestPowerByState(t *testing.T) {
	p := &energy.Profile{Idle: 50, Max: 150, Sleep: 5, WakeUp: 12_000, BootSeconds: 120}
	for state, want := range map[string]energy.Watts{"": 50, "stopping": 50, "asleep": 5, "booting": 105} {
		s := scene{profile: p, power: state, cores: 4}
		if got, awake := s.cpuPower(); got != want || awake != (want == 50) {
			t.Errorf("state %q: got %v W, awake is %v", state, got, awake)
		}
	}
}
