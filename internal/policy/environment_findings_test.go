package policy

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestVariablesInVain verifies that variables without an effect on the program are reported with a fix, and that
// all others are not.
func TestVariablesInVain(t *testing.T) {
	for _, tc := range []struct{ program, environ, want string }{
		{SchedulerProgram, "ELECTRICITY_MAP_API_KEY=s", "ELECTRICITY_MAP_API_KEY has no effect: set it for kubenergy-controller"},
		{ControllerProgram, "ELECTRICITY_MAP_API_KEY=s", ""},
		{SchedulerProgram, "ELECTRICITY_MAP_API_REGION=DE", "has no effect: use spec.zone of a GridZone"},
		{ControllerProgram, "ELECTRICITY_MAP_API_REGION=DE", "has no effect: use spec.zone of a GridZone"},
		{SchedulerProgram, "CACHE_TTL=5m", "use every in the source of a GridZone"},
		{ControllerProgram, "API_TIMEOUT=5s", "the timeout is five seconds"},
		{SchedulerProgram, "LOG_LEVEL=4", "use the flag -v of the scheduler"},
		{ControllerProgram, "LOG_LEVEL=debug", "and --log-level of the controller"},
		{SchedulerProgram, "MAX_SAMPLES_PER_POD=9", "use the parameter samples of the HTTP API"},
		{SchedulerProgram, "COMPLETED_POD_RETENTION=1h", "use --keep-windows of the controller"},
		{SchedulerProgram, "DOWNSAMPLING_STRATEGY=lttb", "use the parameter downsample of the HTTP API"},
		{SchedulerProgram, "ENABLE_POD_PRIORITIES=true", "kube-scheduler always respects priorities"},
		{SchedulerProgram, "PRICING_ENABLED=true", "PRICING_ENABLED without PRICING_SCHEDULES_PATH"},
		{SchedulerProgram, "PRICING_SCHEDULES_PATH=/x", "PRICING_SCHEDULES_PATH has no effect: also set PRICING_ENABLED to true"},
		{SchedulerProgram, "CARBON_INTENSITY_TRESHOLD=200", "(did you mean CARBON_INTENSITY_THRESHOLD?)"},
		{SchedulerProgram, "CARBON_REGION=DE", "unknown variable"},
		{ControllerProgram, "ELECTRICITY_MAP_APIKEY=s", "(did you mean ELECTRICITY_MAP_API_KEY?)"},
		{SchedulerProgram, "NODE_DEFAULT_IDLE=50", "unknown variable"},
		{SchedulerProgram, "MAX_SCHEDULING_DELAY=48h", ""}, // a policy may allow this
		{SchedulerProgram, "MAX_SCHEDULING_DELAY=2 days", `MAX_SCHEDULING_DELAY is "2 days": want a duration`},
		{SchedulerProgram, "CARBON_ENABLED=", ""},
		{SchedulerProgram, "CARBON_ENABLED=false", ""},
		{SchedulerProgram, "HARDWARE_PROFILES_PATH=/x", ""}, // the file is not accessible
		{ControllerProgram, "NODE_POWER_CONFIG_n1=idle:50,max:300", ""},
		{SchedulerProgram, "PROMETHEUS_PORT_9090_TCP=tcp://10.0.0.1:9090", ""}, // set by Kubernetes for Services
		{SchedulerProgram, "PROMETHEUS_SERVICE_HOST=10.0.0.1", ""},
		{SchedulerProgram, "NODE_NAME=n1", ""},
		{SchedulerProgram, "PATH=/bin", ""},
	} {
		_, all := AliasEnvironment(tc.program, strings.Split(tc.environ, "\n"), nil, BuiltIn())
		if tc.want == "" && len(all) > 0 || tc.want != "" && (len(all) != 1 || !strings.Contains(all[0].String(), tc.want)) {
			t.Errorf("%s of %s: found %q, want %q", tc.environ, tc.program, all, tc.want)
		}
	}
}

func TestVariablesThatAreRead(t *testing.T) {
	environ := []string{
		"MAX_SCHEDULING_DELAY=1h", "PRICING_ENABLED=true", "PRICING_SCHEDULES_PATH=" + t.TempDir() + "/none.yaml",
	}
	d, all := AliasEnvironment(SchedulerProgram, environ, os.ReadFile, BuiltIn())
	if got := d.Schedulers[GardenerSchedulerName].AllowedDelay; got != time.Hour {
		t.Errorf("held for %v, want an hour", got)
	}
	if len(all) != 1 || !strings.Contains(fmt.Sprint(all), "no such file") {
		t.Errorf("found %q, want only the missing file", all)
	}
	for name, shared := range map[string]bool{
		"CARBON_ENABLED": true, "NODE_POWER_CONFIG_n1": true, "ELECTRICITY_MAP_API_KEY": false, "PATH": false,
	} {
		if SharedVariable(name) != shared {
			t.Errorf("SharedVariable(%s) = %v", name, !shared)
		}
	}
}

// TestFindKey verifies that an API key is reported unless a GridZone refers to it.
func TestFindKey(t *testing.T) {
	set := []string{"ELECTRICITY_MAP_API_KEY=s"}
	if all := FindKey(set, false); len(all) != 1 || !strings.Contains(all[0].String(), "key: electricitymaps") {
		t.Errorf("found %q", all)
	}
	if all := append(FindKey(set, true), FindKey([]string{"ELECTRICITY_MAP_API_KEY="}, false)...); len(all) > 0 {
		t.Errorf("found %q", all)
	}
}

// TestFindDelay verifies that a delay is reported if it exceeds the maximum of the policy.
func TestFindDelay(t *testing.T) {
	set := []string{"MAX_SCHEDULING_DELAY=48h"}
	all := FindDelay(set, 24*time.Hour)
	if len(all) != 1 || all[0].String() != "MAX_SCHEDULING_DELAY is 48h0m0s, which is reduced to 24h0m0s (maxDelay): set "+
		"maxDelay in the EnergyPolicy of kubenergy-system" {
		t.Errorf("found %q", all)
	}
	if all := append(FindDelay(set, 72*time.Hour), FindDelay(set, 0)...); len(all) > 0 {
		t.Errorf("found %q", all)
	}
}
