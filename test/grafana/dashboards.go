package grafana

import "fmt"

// Units of Grafana.
const (
	watts   = "watt"
	kWh     = "kwatth"
	grams   = "massg"
	seconds = "s"
	bytesIn = "bytes"
	share   = "percentunit"
	plain   = "short"
	minutes = "cpm" // counts per minute
)

// rate returns the query for the increase of a counter per second. perMinute and in return the increase per minute
// and in the selected range.
func rate(by, series string) string {
	return fmt.Sprintf("sum by (%s) (rate(%s[$__rate_interval]))", by, series)
}

func perMinute(by, series string) string { return "60 * " + rate(by, series) }

func in(by, series string) string {
	return fmt.Sprintf("sum by (%s) (increase(%s[$__range]))", by, series)
}

// most returns the query for a gauge that is exposed by every replica or only by the leader.
func most(by, series string) string { return fmt.Sprintf("max by (%s) (%s)", by, series) }

func quantile(q float64, by, series string) string {
	return fmt.Sprintf("histogram_quantile(%v, sum by (le, %s) (rate(%s_bucket[$__rate_interval])))", q, by, series)
}

// several returns a variable with multiple values. Initially, all values are selected.
func several(name, from string) object {
	return object{
		"name": name, "label": name, "type": "query", "datasource": source, "refresh": 2, "sort": 1, "multi": true,
		"includeAll": true, "allValue": ".*",
		"query":   object{"query": fmt.Sprintf("label_values(%s, %s)", from, name), "refId": "variable"},
		"current": object{"text": []string{"All"}, "value": []string{"$__all"}},
	}
}

var (
	namespaces = several("namespace", `{__name__=~"kubenergy_(workload_energy_joules_total|held_jobs|`+
		`shadow_decisions_total|container_energy_joules_total|budget_usage_ratio)"}`)
	nodes  = several("node", `{__name__=~"kubenergy_node_(power_watts|energy_joules_total)"}`)
	signal = object{
		"name": "signal", "label": "carbon signal", "type": "custom", "query": "average,marginal",
		"current": object{"text": "average", "value": "average"},
		"options": []object{
			{"text": "average", "value": "average", "selected": true},
			{"text": "marginal", "value": "marginal", "selected": false},
		},
	}
)

const (
	ofNode  = `{node=~"$node"}`
	ofNS    = `{namespace=~"$namespace"}`
	carbon  = `{namespace=~"$namespace",signal="$signal"}`
	noMeter = "no meter on the network is configured"
)

const (
	workloadEnergy = "kubenergy_workload_energy_joules_total"
	workloadCarbon = "kubenergy_workload_carbon_grams_total"
	otherwise      = "kubenergy_workload_counterfactual_carbon_grams_total"
)

// dashboards contains the dashboards of the chart.
var dashboards = []dashboard{nodesBoard, decisionsBoard, savingsBoard, tenantsBoard, holdsBoard, healthBoard}

var nodesBoard = dashboard{
	name: "nodes", title: "Nodes", variables: []object{nodes},
	text: "Power of the nodes, the quality of these values, and the machines that sleep.",
	rows: []row{
		{"Now", []panel{
			stat(6, "Power by profile", watts, estimated,
				"Power of the nodes at the load that their pods request, from their power profiles and without PUE.",
				"sum("+most("node", "kubenergy_node_power_watts"+ofNode)+")", ""),
			stat(6, "Power by agents", watts, metered,
				"Power of the nodes with an agent. Virtual machines are excluded because their hosts include them.",
				"sum("+rate("node", "kubenergy_node_energy_joules_total"+ofNode)+
					` * on (node) group_left () max by (node) (kubenergy_node_info{vm=""}))`, ""),
			stat(4, "Metered nodes", plain, counted,
				"Nodes that were metered in the last hour. Decisions use live ones. Stale ones have sent no data "+
					"for 45 s, and implausible ones differ widely from the model of their hardware.",
				most("state", "kubenergy_metered_nodes"), "{{state}}"),
			stat(4, "Nodes without an agent", plain, counted,
				"By the source of their energy: a wall meter, a model, or none.",
				most("by", "kubenergy_agentless_nodes"), "{{by}}"),
			stat(4, "Machines that may sleep", plain, counted, "By current power state.",
				most("state", "kubenergy_power_machines"), "{{state}}"),
		}},
		{"Power", []panel{
			graph(12, "Power of each node, by agents", watts, metered, "Energy counted by the root meter of the node.",
				rate("node", "kubenergy_node_energy_joules_total"+ofNode), "{{node}}"),
			graph(12, "Power of each node, by profile", watts, estimated,
				"At the load that its pods request, without PUE.",
				most("node", "kubenergy_node_power_watts"+ofNode), "{{node}}"),
			graph(12, "Power by consumer", watts, metered,
				"Consumers are charged for their dynamic power and a share of idle power. Idle is the part that no "+
					"consumer is charged for, and unknown is measured power without a known consumer. The energy of "+
					"finished containers is in a separate series, which is excluded because it is not current power.",
				"sum(rate(kubenergy_container_energy_joules_total"+ofNode+"[$__rate_interval]))", "containers",
				"sum(rate(kubenergy_system_energy_joules_total"+ofNode+"[$__rate_interval]))", "system",
				"sum(rate(kubenergy_node_idle_joules_total"+ofNode+"[$__rate_interval]))", "idle",
				"sum(rate(kubenergy_node_platform_joules_total"+ofNode+"[$__rate_interval]))", "platform",
				"sum(rate(kubenergy_node_unknown_joules_total"+ofNode+"[$__rate_interval]))", "unknown").stack(),
			graph(12, "Power by quality", watts, metered,
				"Power reported by agents that was measured, derived from other meters, or estimated.",
				rate("quality", "kubenergy_node_energy_joules_total"+ofNode), "{{quality}}").stack(),
			graph(8, "Wall meters", watts, wall, "Calibrated readings of plugs and management controllers.",
				most("node, meter", "kubenergy_meter_power_watts"+ofNode), "{{node}} {{meter}}").unless(noMeter),
			graph(8, "Ratio of wall meter to agent", plain, wall,
				"Energy at the wall meter per energy reported by the agent, over ten minutes. Typical values are 1.1 "+
					"to 1.4. A value far outside this range indicates that a plug is mapped to another node.",
				most("node", "kubenergy_meter_agent_ratio"+ofNode), "{{node}}").unless(noMeter +
				" on a node with an agent"),
			graph(8, "Machines that may sleep", plain, counted, "By power state.",
				most("state", "kubenergy_power_machines"), "{{state}}").stack(),
		}},
		{"Properties", []panel{
			bars(8, "Efficiency", "suffix: cores/W", estimated,
				"Allocatable cores per watt of CPU power at full load, including PUE. The annotation min-efficiency "+
					"is compared with this value.", most("node", "kubenergy_node_efficiency"+ofNode), "{{node}}"),
			bars(8, "PUE", "none", "From the profile, otherwise from the zone, otherwise 1.",
				"Energy of the facility divided by the energy of the node.",
				most("node", "kubenergy_node_pue"+ofNode), "{{node}}"),
			graph(8, "Time without a meter", share, counted,
				"Fraction of the time during which no meter returned a value. The energy of this time is lost or "+
					"reported later. It is never estimated.", rate("node", "kubenergy_node_unmeasured_seconds_total"+ofNode), "{{node}}"),
			graph(12, "Idle power", watts, "Fitted by agents to their measurements.",
				"Power of the node without load.",
				most("node", "kubenergy_node_idle_power_watts"+ofNode), "{{node}}"),
			graph(12, "Temperature", "celsius", "Measured.", "The hottest sensor of each node.",
				most("node", "kubenergy_node_temperature_celsius"+ofNode),
				"{{node}}").unless("the nodes have no hardware monitors"),
		}},
	},
}

var decisionsBoard = dashboard{
	name: "decisions", title: "Decisions", variables: []object{namespaces},
	text: "Decisions of the scheduler and the controller by strategy and reason, and those of shadow mode.",
	rows: []row{
		{"Executed decisions", []panel{
			stat(12, "Decisions", plain, counted,
				"Placed pods, held and released work, and deferrable work that was started immediately (refuse) in "+
					"the selected time range.", in("action", "kubenergy_decisions_total"), "{{action}}"),
			stat(12, "Scheduling attempts", plain, counted,
				"Scheduling attempts of kubenergy-scheduler in the selected time range, by result.",
				in("result", `scheduler_schedule_attempts_total{job="kubenergy-scheduler"}`), "{{result}}"),
			graph(12, "Placements by strategy", minutes, counted, "Pods placed per minute.",
				perMinute("strategy", `kubenergy_decisions_total{action="place"}`), "{{strategy}}"),
			graph(12, "Holds and releases by strategy", minutes, counted, "Jobs and pods per minute.",
				perMinute("action, strategy", `kubenergy_decisions_total{action=~"hold|release"}`),
				"{{action}} {{strategy}}"),
			bars(12, "Reasons", plain, counted, "Decisions in the selected time range by action and reason.",
				in("action, reason", "kubenergy_decisions_total"), "{{action}}: {{reason}}"),
			graph(12, "Work started immediately", minutes, counted,
				"Deferrable work per minute that is not held, by reason. NotHeld means that no plan was made, for "+
					"example because of the mode. NoEffect means that the annotations are invalid.",
				perMinute("reason", `kubenergy_decisions_total{action="refuse"}`),
				"{{reason}}").unless("all deferrable work was held"),
		}},
		{"Candidate nodes", []panel{
			graph(8, "Rejected nodes", minutes, counted, "Nodes that do not meet the power or efficiency limits.",
				perMinute("reason", "kubenergy_filtered_nodes_total"), "{{reason}}").unless("no pod has such requirements"),
			graph(8, "Cycles restricted to few nodes", minutes, counted,
				"Cycles that evaluated only the nodes with the lowest cost, and those that had to be repeated.",
				perMinute("outcome", "kubenergy_shortlisted_cycles_total"),
				"{{outcome}}").unless("the cluster is small"),
			graph(8, "Plans for all pending pods", minutes, counted,
				"Batch plans by result. A whole plan contains a node for each pod.",
				perMinute("profile, result", "kubenergy_batch_plans_total"),
				"{{profile}} {{result}}").unless("no profile plans batches"),
			graph(12, "Duration of scheduling attempts", seconds, counted,
				"Median and 99th percentile of all attempts.",
				quantile(0.5, "result", attempts), "median {{result}}",
				quantile(0.99, "result", attempts), "99 % {{result}}"),
			graph(12, "Records of decisions", minutes, counted,
				"Records sent to the controller, rejected by it, or dropped because the queue was full. Reports do "+
					"not contain the savings of dropped records.", perMinute("outcome", "kubenergy_records_total"), "{{outcome}}"),
		}},
		{"Shadow mode", []panel{
			graph(12, "Decisions that were not executed", minutes, counted,
				"Decisions for new work in namespaces with the mode shadow or advise, by rule.",
				perMinute("rule, outcome", "kubenergy_shadow_decisions_total"+ofNS),
				"{{rule}}: {{outcome}}").unless("all namespaces with work use the mode enforce or off"),
			bars(12, "Emissions avoidable by holding", grams, estimated,
				"For the selected time range, assuming a nominal power per requested core.",
				in("namespace, signal", "kubenergy_shadow_saved_carbon_grams_total"+ofNS),
				"{{namespace}} {{signal}}").unless("all namespaces with work use the mode enforce or off"),
		}},
	},
}

const attempts = `scheduler_scheduling_attempt_duration_seconds`

var savingsBoard = dashboard{
	name: "savings", title: "Energy, carbon and cost", variables: []object{namespaces, nodes, signal},
	text: "Energy, emissions and cost of workloads, and the savings compared with an immediate start. Pods " +
		"in opted-in namespaces are included when they finish. Containers are those on nodes with an agent.",
	rows: []row{
		{"Selected time range", []panel{
			stat(5, "Energy", kWh, booked, "Energy of finished pods, including PUE.",
				"sum(increase("+workloadEnergy+ofNS+"[$__range])) / 3.6e6", ""),
			stat(5, "Emissions", grams, booked,
				"Emissions of finished pods in grams of CO2e, at the mean carbon intensity of each interval.",
				"sum(increase("+workloadCarbon+carbon+"[$__range]))", ""),
			stat(5, "Emissions saved", grams, estimated,
				"Emissions of the same energy if no Job had been held, minus the actual emissions.",
				"sum(increase("+otherwise+carbon+"[$__range])) - sum(increase("+workloadCarbon+carbon+"[$__range]))",
				""),
			stat(5, "Fraction of emissions saved", share, estimated,
				"Relative to the emissions without holding any work.",
				"1 - sum(increase("+workloadCarbon+carbon+"[$__range])) / (sum(increase("+otherwise+carbon+
					"[$__range])) > 0)", ""),
			stat(4, "Derived from meters", share, counted,
				"Fraction of the energy that was derived from a meter. The rest was estimated by a model.",
				"(sum(increase(kubenergy_workload_energy_quality_joules_total"+
					`{namespace=~"$namespace",quality="derived"}[$__range])) or vector(0)) / `+
					"(sum(increase(kubenergy_workload_energy_quality_joules_total"+ofNS+"[$__range])) > 0)", ""),
			stat(8, "Cost", plain, booked,
				"Electricity cost of finished pods since the leading controller started, by currency.",
				"sum by (currency) (kubenergy_workload_cost"+ofNS+")", "{{currency}}"),
			stat(8, "Cost saved", plain, estimated,
				"Since the leading controller started, compared with starting all work immediately.",
				"sum by (currency) (kubenergy_workload_counterfactual_cost"+ofNS+
					") - sum by (currency) (kubenergy_workload_cost"+ofNS+")", "{{currency}}"),
			stat(8, "Pods with missing data", plain, counted,
				"Finished pods in the selected time range that could not be accounted completely, by missing data.",
				in("lacks", "kubenergy_workload_unaccounted_total"),
				"{{lacks}}").unless("all finished pods were accounted completely"),
		}},
		{"By namespace", []panel{
			bars(8, "Energy", kWh, booked, "Energy of finished pods in the selected time range, including PUE.",
				in("namespace", workloadEnergy+ofNS)+" / 3.6e6", "{{namespace}}"),
			bars(8, "Emissions", grams, booked, "Emissions of finished pods in the selected time range.",
				in("namespace", workloadCarbon+carbon), "{{namespace}}"),
			bars(8, "Emissions saved", grams, estimated,
				"In the selected time range, compared with starting all work immediately.",
				in("namespace", otherwise+carbon)+" - "+in("namespace", workloadCarbon+carbon), "{{namespace}}"),
			graph(12, "Power of containers", watts, metered,
				"Running containers on nodes with an agent, without PUE. Containers without a known namespace have an "+
					"empty name.",
				rate("namespace", `kubenergy_container_energy_joules_total{namespace=~"$namespace",node=~"$node"}`),
				"{{namespace}}").stack(),
			graph(12, "Emissions with and without holding", grams, booked,
				"Emissions of finished pods since the leading controller started.",
				"sum("+workloadCarbon+carbon+")", "emitted",
				"sum("+otherwise+carbon+")", "without holding"),
		}},
		{"By node", []panel{
			bars(12, "Energy", kWh, metered, "Energy metered by agents in the selected time range.",
				in("node", "kubenergy_node_energy_joules_total"+ofNode)+" / 3.6e6", "{{node}}"),
			graph(12, "Power", watts, metered, "Power metered by agents.",
				rate("node", "kubenergy_node_energy_joules_total"+ofNode), "{{node}}").stack(),
		}},
		{"The grid", []panel{
			graph(8, "Carbon intensity", "suffix: g/kWh", provided, "Currently used value by zone.",
				most("zone, signal, quality", "kubenergy_grid_carbon_intensity_grams_per_kilowatthour"),
				"{{zone}} {{signal}} ({{quality}})"),
			graph(8, "Price", "suffix: /kWh", provided, "Currently used value by zone and currency.",
				most("zone, currency", "kubenergy_electricity_price_per_kilowatthour"), "{{zone}} {{currency}}"),
			graph(8, "Forecast error", share, counted,
				"Mean absolute error of the forecasts of the hourly carbon intensity over one day, by forecast "+
					"horizon.",
				"sum by (zone, horizon) (increase(kubenergy_forecast_error_ratio_sum[1d])) / "+
					"(sum by (zone, horizon) (increase(kubenergy_forecast_error_ratio_count[1d])) > 0)",
				"{{zone}} {{horizon}}").unless("no forecast hour has passed"),
		}},
	},
}

var tenantsBoard = dashboard{
	name: "tenants", title: "Tenants and budgets", variables: []object{namespaces, signal},
	text: "Usage of each namespace and of its budgets.",
	rows: []row{
		{"Budgets", []panel{
			bars(12, "Budgets used", share, booked,
				"Fraction of each limit that has been used in the current period. It can exceed 100 %.",
				most("namespace, budget, workload, resource", "kubenergy_budget_usage_ratio"+ofNS),
				"{{namespace}}/{{budget}} {{workload}} {{resource}}").unless(noBudget).redFrom(1),
			graph(12, "Budgets used, over time", share, booked, "Fraction of each limit that has been used, over time.",
				most("namespace, budget, workload, resource", "kubenergy_budget_usage_ratio"+ofNS),
				"{{namespace}}/{{budget}} {{workload}} {{resource}}").unless(noBudget),
			bars(8, "Warnings", plain, counted, "Actions below 100 % in the selected time range.",
				in("namespace, action", "kubenergy_budget_warnings_total"+ofNS),
				"{{namespace}} {{action}}").unless("no warning level has been reached"),
			bars(8, "Exceeded", plain, counted, "Actions because a budget was exceeded in the selected time range.",
				in("namespace, owner_kind, action", "kubenergy_budget_exceeded_total"+ofNS),
				"{{namespace}} {{owner_kind}} {{action}}").unless("no budget is exceeded"),
			bars(8, "Jobs suspended", plain, counted, "Jobs suspended in the selected time range.",
				in("namespace", "kubenergy_budget_suspended_jobs_total"+ofNS),
				"{{namespace}}").unless("no budget has suspended a Job"),
		}},
		{"Use", []panel{
			bars(8, "Energy", kWh, booked, "Energy of finished pods in the selected time range, including PUE.",
				in("namespace", workloadEnergy+ofNS)+" / 3.6e6", "{{namespace}}"),
			bars(8, "Emissions", grams, booked, "Emissions of finished pods in the selected time range.",
				in("namespace", workloadCarbon+carbon), "{{namespace}}"),
			bars(8, "Cost", plain, booked, "Cost of finished pods since the leading controller started.",
				"sum by (namespace, currency) (kubenergy_workload_cost"+ofNS+")", "{{namespace}} {{currency}}"),
			graph(12, "Power of containers", watts, metered,
				"Running containers on nodes with an agent, without PUE.",
				rate("namespace", "kubenergy_container_energy_joules_total"+ofNS), "{{namespace}}").stack(),
			graph(12, "Energy by quality", watts, counted,
				"Energy of finished pods per second, by quality. A pod is included when it finishes.",
				rate("quality", "kubenergy_workload_energy_quality_joules_total"+ofNS), "{{quality}}").stack(),
			bars(8, "Finished pods", plain, counted, "Finished pods accounted in the selected time range.",
				in("namespace", "kubenergy_workload_finished_total"+ofNS), "{{namespace}}"),
			bars(8, "Run time", seconds, counted, "Total run time of these pods.",
				in("namespace", "kubenergy_workload_runtime_seconds_total"+ofNS), "{{namespace}}"),
			bars(8, "Jobs currently held", plain, counted, "Jobs that wait for a better time.",
				most("namespace", "kubenergy_held_jobs"+ofNS), "{{namespace}}").unless("no work is held"),
		}},
	},
}

const noBudget = "no EnergyBudget exists"

var holdsBoard = dashboard{
	name: "holds", title: "Holds", variables: []object{namespaces},
	text: "Held work, released work, and the lateness of releases.",
	rows: []row{
		{"Now", []panel{
			stat(6, "Held", plain, counted, "Jobs and pods without an owner that are held.",
				most("kind", "kubenergy_held"), "{{kind}}"),
			stat(6, "Released", plain, counted,
				"Releases in the selected time range, by cause. DeadlineForced takes precedence over all limits.",
				in("cause", "kubenergy_releases_total"), "{{cause}}"),
			stat(6, "Overdue", plain, counted,
				"Jobs past their deadline that the controller released because no scheduler did, in the selected "+
					"time range. If the value is above 0, check the schedulers.",
				in("result", "kubenergy_overdue_releases_total"),
				"{{result}}").unless("the schedulers released all Jobs in time").redFrom(1),
			stat(6, "Last iteration of the hold loop", seconds, counted,
				"Time since it started. After two minutes the process exits.",
				"max(kubenergy_hold_turn_age_seconds)", "").redFrom(60),
		}},
		{"Over time", []panel{
			graph(12, "Held", plain, counted, "Jobs and pods without an owner that are held.",
				most("kind", "kubenergy_held"), "{{kind}}"),
			graph(12, "Jobs held, by namespace", plain, counted, "Held Jobs as counted by the controller.",
				most("namespace", "kubenergy_held_jobs"+ofNS), "{{namespace}}").unless("no work is held").stack(),
			graph(12, "Released", minutes, counted, "Jobs and pods released per minute, by cause.",
				perMinute("kind, cause", "kubenergy_releases_total"), "{{kind}} {{cause}}"),
			graph(12, "Releases in flight", plain, counted,
				"Released work that has not started yet, and its limit. Deadlines are not subject to the limit.",
				most("kind", "kubenergy_releases_in_flight"), "{{kind}} in flight",
				most("kind", "kubenergy_release_window"), "{{kind}} allowed"),
			graph(12, "Hold duration", seconds, counted,
				"Median and 90th percentile of the hold duration of released work.",
				quantile(0.5, "kind", "kubenergy_hold_seconds"), "median {{kind}}",
				quantile(0.9, "kind", "kubenergy_hold_seconds"), "90 % {{kind}}"),
			graph(12, "Lateness of releases", seconds, counted,
				"99th percentile of the time from the planned start to the release. Early releases are excluded.",
				quantile(0.99, "kind", "kubenergy_release_lateness_seconds"), "99 % {{kind}}"),
			graph(12, "Lateness of starts", seconds, counted,
				"99th percentile of the time from the deadline to the binding, which is 0 for earlier bindings.",
				quantile(0.99, "kind", "kubenergy_start_lateness_seconds"), "99 % {{kind}}"),
			graph(12, "Pending notes", plain, counted,
				"Annotations, conditions and events of held work that have not been written to the API server.",
				"max(kubenergy_hold_notes_waiting)", "notes"),
		}},
	},
}

var healthBoard = dashboard{
	name: "health", title: "Health", variables: []object{nodes},
	text: "Health of the scheduler, controller, ledger, ingestion and agents of KubEnergy.",
	rows: []row{
		{"Now", []panel{
			stat(6, "Available processes", plain, counted, "Replicas and agents that Prometheus can scrape.",
				`sum by (job) (up{job=~"kubenergy-.*"})`, "{{job}}"),
			stat(6, "Alerts", plain, counted, "Firing alerts of the chart.",
				`count by (alertname) (ALERTS{alertname=~"KubEnergy.*",alertstate="firing"})`,
				"{{alertname}}").unless("no alert is firing").redFrom(1),
			stat(6, "Panics", plain, counted,
				"Panics in the selected time range by component. Each one affects one object or one decision.",
				in("part", "kubenergy_panics_total"), "{{part}}").redFrom(1),
			stat(6, "Breaker", plain, counted,
				"1 after three panics within one minute. The scheduler then uses the default plugins for ten minutes.",
				"max by (job) (kubenergy_panics_breaker_open)", "{{job}}").redFrom(1),
			stat(6, "Ledger writable", plain, counted, "0 if no batch is acknowledged and agents retain them.",
				"min(kubenergy_ledger_writable)", ""),
			stat(6, "Ledger gaps", plain, counted,
				"Batches in the selected time range that follow missing numbers.",
				"sum(increase(kubenergy_ledger_gaps_total[$__range]))", "").redFrom(1),
			stat(6, "Age of live power", seconds, counted,
				"Age of the most recent value in the scheduler, or -1 if it has none.",
				"min(kubenergy_live_age_seconds)", "").redFrom(120),
			stat(6, "Leases held", plain, counted, "1 if a process of the pair holds the Lease.",
				`max by (name) (leader_election_master_status{name=~"kubenergy-.*"})`, "{{name}}"),
		}},
		{"Signals", []panel{
			graph(8, "Age of signals", seconds, "According to the timestamp of the source.", "Age of used values by zone.",
				most("zone, quantity", "kubenergy_signal_age_seconds"), "{{zone}} {{quantity}}"),
			graph(8, "Requests to sources", minutes, counted, "Requests including retries, by outcome.",
				perMinute("source, outcome", "kubenergy_signal_requests_total"),
				"{{source}} {{outcome}}").unless("all sources are static values or files"),
			graph(8, "Rejected responses", minutes, counted, "Responses rejected by source and reason.",
				perMinute("source, reason", "kubenergy_signal_rejected_total"),
				"{{source}} {{reason}}").unless("no response was rejected"),
		}},
		{"Ledger and ingestion", []panel{
			graph(8, "Batches of agents", minutes, counted, "Batches per minute by result.",
				perMinute("result", "kubenergy_ingest_batches_total"), "{{result}}"),
			graph(8, "Time to acknowledge a batch", seconds, counted, "99th percentile of all batches.",
				"histogram_quantile(0.99, sum by (le) (rate(kubenergy_ingest_seconds_bucket[$__rate_interval])))",
				"99 %"),
			graph(8, "Recorded energy", watts, booked, "Recorded energy per second, including guests.",
				"sum(rate(kubenergy_ingest_joules_total[$__rate_interval]))", "booked"),
			graph(8, "Records", minutes, counted,
				"Records per minute. Repeated ones had been recorded before, and refused ones contradict the ledger.",
				perMinute("result", "kubenergy_ledger_bookings_total"), "{{result}}"),
			graph(8, "Commit duration", seconds, counted, "Mean duration of the transactions that write records.",
				`sum(rate(kubenergy_ledger_commit_seconds_total[$__rate_interval])) / `+
					`(sum(rate(kubenergy_ledger_commits_total[$__rate_interval])) > 0)`, "mean"),
			graph(8, "Pending batches", plain, counted,
				"Batches that have not been written, and written batches that are not included in sums yet.",
				"max(kubenergy_ledger_waiting_bookings)", "to be written",
				"max(kubenergy_ledger_journal_bookings)", "in the journal"),
			graph(8, "Size of the ledger", bytesIn, counted, "Size of the files on disk.", "max(kubenergy_ledger_bytes)", "ledger"),
			graph(8, "Questionable batches", minutes, counted,
				"Implausible batches are recorded but not used for decisions. Late ones are excluded from budgets, "+
					"those with a gap follow lost ones, and those ahead come from clocks that run fast.",
				"60 * sum(rate(kubenergy_ingest_implausible_total[$__rate_interval]))", "implausible",
				"60 * sum(rate(kubenergy_ingest_late_total[$__rate_interval]))", "late",
				"60 * sum(rate(kubenergy_ingest_gaps_total[$__rate_interval]))", "gap",
				"60 * sum(rate(kubenergy_ingest_ahead_total[$__rate_interval]))", "ahead"),
			graph(8, "Requests to the HTTP API", minutes, counted, "Requests by route and status code.",
				perMinute("route, code", "kubenergy_api_requests_total"),
				"{{route}} {{code}}").unless("no client sends requests to the controller"),
		}},
		{"Agents", []panel{
			graph(8, "Readable meters", plain, counted,
				"1 if the last reading of this kind of meter succeeded. Meters below the root are included.",
				"min by (node, meter) (kubenergy_agent_meter_readable"+ofNode+")", "{{node}} {{meter}}"),
			graph(8, "Tick duration", seconds, counted, "99th percentile of all ticks.",
				quantile(0.99, "node", "kubenergy_agent_tick_duration_seconds"), "{{node}}"),
			graph(8, "Lost ticks", minutes, counted,
				"Ticks per minute that were skipped because a previous one took too long.",
				perMinute("node", "kubenergy_agent_lost_ticks_total"+ofNode), "{{node}}"),
			graph(8, "Oldest unacknowledged batch", seconds, counted, "Batches are retained until acknowledgement.",
				most("node", "kubenergy_agent_delivery_oldest_age_seconds"+ofNode), "{{node}}"),
			graph(8, "Failed deliveries", minutes, counted, "Failed deliveries by reason.",
				perMinute("node, reason", "kubenergy_agent_delivery_failures_total"+ofNode),
				"{{node}} {{reason}}"),
			graph(8, "Consumers", plain, counted, "Containers, virtual machines and other groups with series.",
				most("node, state", "kubenergy_agent_consumers"+ofNode), "{{node}} {{state}}"),
		}},
		{"Processes", []panel{
			graph(8, "Memory", bytesIn, counted, "Resident memory of the largest process.",
				`max by (job) (process_resident_memory_bytes{job=~"kubenergy-.*"})`, "{{job}}"),
			graph(8, "CPU", "none", counted, "CPU cores used by all replicas and agents.",
				rate("job", `process_cpu_seconds_total{job=~"kubenergy-.*"}`), "{{job}}"),
			graph(8, "Scheduler cache", plain, counted,
				"Nodes, pods and assumed pods in the cache of the scheduler.",
				most("type", `scheduler_cache_size{job="kubenergy-scheduler"}`), "{{type}}"),
			graph(12, "Nodes with live power in the scheduler", plain, counted,
				"Nodes in the last response, and omitted ones by reason.",
				most("state", "kubenergy_live_nodes"), "{{state}}"),
			graph(12, "Rejected requests", minutes, counted,
				"Rejected requests of users and programs to the controller, by reason.",
				perMinute("reason", "kubenergy_access_refused_total"),
				"{{reason}}").unless("all clients have the required permissions"),
		}},
	},
}
