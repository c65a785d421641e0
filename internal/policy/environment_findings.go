package policy

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/spelling"
)

// Programs that read variables of Compute Gardener, by the names of their Deployments.
const (
	SchedulerProgram  = "kubenergy-scheduler"
	ControllerProgram = "kubenergy-controller"
)

// GardenerKey is the name by which GridZones refer to the API key of Electricity Maps in the environment.
const GardenerKey = "electricitymaps"

// GardenerKeys are the variables with that API key, in order of precedence. Only the controller reads them.
var GardenerKeys = []string{"ELECTRICITY_MAP_API_KEY", "ELECTRICITY_MAPS_API_KEY"}

// obsolete maps variables without an effect to their replacements.
var obsolete = map[string]string{
	"ENABLE_POD_PRIORITIES":        "kube-scheduler always respects priorities",
	"PRICING_PROVIDER":             "sources of prices are configured in GridZones",
	"METRICS_SAMPLING_INTERVAL":    "the controller stores sums of five minutes",
	"MAX_SAMPLES_PER_POD":          "use the parameter samples of the HTTP API",
	"COMPLETED_POD_RETENTION":      "use --keep-windows of the controller",
	"DOWNSAMPLING_STRATEGY":        "use the parameter downsample of the HTTP API",
	"PROMETHEUS_URL":               "the scheduler does not query other systems",
	"PROMETHEUS_QUERY_TIMEOUT":     "the scheduler does not query other systems",
	"PROMETHEUS_USE_DCGM":          "the scheduler does not query other systems",
	"PROMETHEUS_DCGM_POWER_METRIC": "the scheduler does not query other systems",
	"ENABLE_TRACING":               "use kube-scheduler's own tracing configuration",
	"LOG_LEVEL":                    "use the flag -v of the scheduler and --log-level of the controller",
	"ELECTRICITY_MAP_API_REGION":   "use spec.zone of a GridZone",
	"ELECTRICITY_MAP_API_URL":      "use electricityMaps.url in the source of a GridZone",
	"CACHE_TTL":                    "use every in the source of a GridZone",
	"MAX_CACHE_AGE":                "use carbon.maxAge of a GridZone",
	"API_RATE_LIMIT":               "use maxCallsPerHour in the source of a GridZone",
	"API_TIMEOUT":                  "the timeout is five seconds",
	"API_MAX_RETRIES":              "requests are retried twice",
	"API_RETRY_DELAY":              "the delay is at least a second, or as requested by the provider",
}

var (
	// gardenerLike matches names that are likely to be variables of Compute Gardener.
	gardenerLike = regexp.MustCompile(`^(CARBON|PRICING|ELECTRICITY_MAPS?|NODE_(DEFAULT|POWER)|HARDWARE_PROFILES?` +
		`|PROMETHEUS)_`)
	// ofService matches the variables that Kubernetes sets in each container for the Services of its namespace.
	ofService = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT\w*|PORT|PORT_\w+)$`)
)

// SharedVariable reports whether both the scheduler and the controller read a variable. Its value must then be the
// same for both, because the controller predicts the decisions of the scheduler in shadow mode.
func SharedVariable(name string) bool {
	_, read := variables[name]
	return read || strings.HasPrefix(name, nodePowerPrefix)
}

// setVariables returns the variables with non-empty values.
func setVariables(environ []string) map[string]string {
	set := map[string]string{}
	for _, entry := range environ {
		if name, value, _ := strings.Cut(entry, "="); value != "" {
			set[name] = value
		}
	}
	return set
}

// FindKey returns a finding if the API key of Electricity Maps is set but no GridZone refers to it.
func FindKey(environ []string, named bool) (all []Finding) {
	set := setVariables(environ)
	for _, name := range GardenerKeys {
		all = addIf(all, !named && set[name] != "", "environment variable "+name+" has no effect on its own",
			"it is the API key of GridZones with a source electricityMaps with key: "+GardenerKey)
	}
	return all
}

// findVariables returns a finding for each variable of Compute Gardener that has no effect on the program.
func findVariables(program string, set map[string]string) (all []Finding) {
	for _, name := range slices.Sorted(maps.Keys(set)) {
		why, useless := obsolete[name]
		switch {
		case useless:
		case slices.Contains(GardenerKeys, name):
			if program == ControllerProgram {
				continue
			}
			why = "set it for " + ControllerProgram + ", which queries the providers (controller.extraEnv)"
		case name == "PRICING_SCHEDULES_PATH" && !pricing(set):
			why = "also set PRICING_ENABLED to true"
		case SharedVariable(name), !gardenerLike.MatchString(name), ofService.MatchString(name):
			continue
		default:
			why = "unknown variable" + spelling.DidYouMean(name, variableNames())
		}
		all = append(all, Finding{Said: "environment variable " + name + " has no effect", Mend: why})
	}
	return addIf(all, pricing(set) && set["PRICING_SCHEDULES_PATH"] == "", "PRICING_ENABLED without "+
		"PRICING_SCHEDULES_PATH: only workloads with their own price threshold wait for prices", "")
}

// pricing reports whether work is held for lower prices.
func pricing(set map[string]string) bool {
	on, err := readBool(set["PRICING_ENABLED"])
	return on && err == nil
}

// variableNames returns the names of all variables that have an effect.
func variableNames() []string {
	return slices.Concat(slices.Collect(maps.Keys(variables)), GardenerKeys, []string{nodePowerPrefix})
}

// FindDelay returns a finding if MAX_SCHEDULING_DELAY exceeds the maximum delay of a cluster in which work may
// wait.
func FindDelay(environ []string, most time.Duration) (all []Finding) {
	delay, err := readDuration(setVariables(environ)["MAX_SCHEDULING_DELAY"])
	if err == nil && most > 0 && delay > most {
		all = append(all, Finding{
			Said: fmt.Sprintf("MAX_SCHEDULING_DELAY is %v, which is reduced to %v (maxDelay)", delay, most),
			Mend: "set maxDelay in the EnergyPolicy of kubenergy-system",
		})
	}
	return all
}
