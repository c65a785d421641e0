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
	noMeter = "there is no meter on the network"
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
	text: "What nodes draw, how well that is known, and which machines sleep.",
	rows: []row{
		{"Now", []panel{
			stat(6, "Power by profile", watts, estimated,
				"What the nodes draw at the load that their pods request, by their power profiles; without PUE.",
				"sum("+most("node", "kubenergy_node_power_watts"+ofNode)+")", ""),
			stat(6, "Power by agents", watts, metered,
				"What the nodes that have an agent draw. Virtual machines are left out: their host has counted them.",
				"sum("+rate("node", "kubenergy_node_energy_joules_total"+ofNode)+
					` * on (node) group_left () max by (node) (kubenergy_node_info{vm=""}))`, ""),
			stat(4, "Metered nodes", plain, counted,
				"Nodes that were metered in the last hour. Live ones are decided by; stale ones were not heard "+
					"for 45 s; implausible ones are far from what a model of their hardware says.",
				most("state", "kubenergy_metered_nodes"), "{{state}}"),
			stat(4, "Nodes without an agent", plain, counted,
				"By what their energy comes from: a meter at the wall, a model, or nothing.",
				most("by", "kubenergy_agentless_nodes"), "{{by}}"),
			stat(4, "Machines that may sleep", plain, counted, "By what they do now.",
				most("state", "kubenergy_power_machines"), "{{state}}"),
		}},
		{"Power", []panel{
			graph(12, "Power of each node, by agents", watts, metered, "What the node's root meter counts.",
				rate("node", "kubenergy_node_energy_joules_total"+ofNode), "{{node}}"),
			graph(12, "Power of each node, by profile", watts, estimated,
				"At the load that its pods request, without PUE.",
				most("node", "kubenergy_node_power_watts"+ofNode), "{{node}}"),
			graph(12, "Where the watts go", watts, metered,
				"Consumers pay for what they compute and for their share of idle power. Idle is what no consumer "+
					"carries; unknown is measured, and no consumer of it was found. What containers used that "+
					"have ended moves to a series of its own, which is left out: it is no power of now.",
				"sum(rate(kubenergy_container_energy_joules_total"+ofNode+"[$__rate_interval]))", "containers",
				"sum(rate(kubenergy_system_energy_joules_total"+ofNode+"[$__rate_interval]))", "system",
				"sum(rate(kubenergy_node_idle_joules_total"+ofNode+"[$__rate_interval]))", "idle",
				"sum(rate(kubenergy_node_platform_joules_total"+ofNode+"[$__rate_interval]))", "platform",
				"sum(rate(kubenergy_node_unknown_joules_total"+ofNode+"[$__rate_interval]))", "unknown").stack(),
			graph(12, "Power by quality", watts, metered,
				"How much of the agents' watts was measured, derived from other meters, or estimated.",
				rate("quality", "kubenergy_node_energy_joules_total"+ofNode), "{{quality}}").stack(),
			graph(8, "Meters at the wall", watts, wall, "What plugs and management controllers show, calibrated.",
				most("node, meter", "kubenergy_meter_power_watts"+ofNode), "{{node}} {{meter}}").unless(noMeter),
			graph(8, "Wall over agent", plain, wall,
				"Energy at the wall per energy that the agent tells, of ten minutes. 1.1 to 1.4 is usual; far "+
					"from it, a plug is mapped to another node.",
				most("node", "kubenergy_meter_agent_ratio"+ofNode), "{{node}}").unless(noMeter +
				" on a node with an agent"),
			graph(8, "Machines that may sleep", plain, counted, "By what they do.",
				most("state", "kubenergy_power_machines"), "{{state}}").stack(),
		}},
		{"Properties", []panel{
			bars(8, "Efficiency", "suffix: cores/W", estimated,
				"Allocatable cores per watt of CPU power at full load, PUE included: what min-efficiency is "+
					"compared with.", most("node", "kubenergy_node_efficiency"+ofNode), "{{node}}"),
			bars(8, "PUE", "none", "Of the profile, else of the zone, else 1.",
				"Energy of the facility per energy of the node.",
				most("node", "kubenergy_node_pue"+ofNode), "{{node}}"),
			graph(8, "Time without a meter", share, counted,
				"Share of the time for which no meter gave a value. Energy of it is lost, or comes late; it is "+
					"never made up.", rate("node", "kubenergy_node_unmeasured_seconds_total"+ofNode), "{{node}}"),
			graph(12, "Idle power", watts, "Fitted by agents to what they meter.",
				"What the node draws without load.",
				most("node", "kubenergy_node_idle_power_watts"+ofNode), "{{node}}"),
			graph(12, "Temperature", "celsius", "Measured.", "The hottest sensor of each node.",
				most("node", "kubenergy_node_temperature_celsius"+ofNode),
				"{{node}}").unless("the nodes have no hardware monitors"),
		}},
	},
}

var decisionsBoard = dashboard{
	name: "decisions", title: "Decisions", variables: []object{namespaces},
	text: "What scheduler and controller decided, by which strategy and why, and what shadow mode would have done.",
	rows: []row{
		{"Decisions that were carried out", []panel{
			stat(12, "Decisions", plain, counted,
				"In the range that is shown: pods placed, work held and released, and work that may wait and "+
					"starts at once all the same (refuse).", in("action", "kubenergy_decisions_total"), "{{action}}"),
			stat(12, "Scheduling attempts", plain, counted,
				"Of kubenergy-scheduler, in the range that is shown, by result.",
				in("result", `scheduler_schedule_attempts_total{job="kubenergy-scheduler"}`), "{{result}}"),
			graph(12, "Placements by strategy", minutes, counted, "Pods placed per minute.",
				perMinute("strategy", `kubenergy_decisions_total{action="place"}`), "{{strategy}}"),
			graph(12, "Holds and releases by strategy", minutes, counted, "Jobs and pods per minute.",
				perMinute("action, strategy", `kubenergy_decisions_total{action=~"hold|release"}`),
				"{{action}} {{strategy}}"),
			bars(12, "Reasons", plain, counted, "Decisions in the range that is shown, by what was done and why.",
				in("action, reason", "kubenergy_decisions_total"), "{{action}}: {{reason}}"),
			graph(12, "Work that starts at once", minutes, counted,
				"Work per minute that says it may wait and is not held, by why: NotHeld where no plan was made "+
					"of it, as in another mode; NoEffect where its annotations make no sense.",
				perMinute("reason", `kubenergy_decisions_total{action="refuse"}`),
				"{{reason}}").unless("all such work was held"),
		}},
		{"Nodes that were chosen from", []panel{
			graph(8, "Nodes refused", minutes, counted, "For what a pod asked of their power or efficiency.",
				perMinute("reason", "kubenergy_filtered_nodes_total"), "{{reason}}").unless("no pod asks for that"),
			graph(8, "Cycles narrowed to few nodes", minutes, counted,
				"Cycles that looked at the nodes of least cost alone, and of these those in vain.",
				perMinute("outcome", "kubenergy_shortlisted_cycles_total"),
				"{{outcome}}").unless("the cluster is small"),
			graph(8, "Plans over all waiting pods", minutes, counted,
				"By result; whole ones had a node for each pod.",
				perMinute("profile, result", "kubenergy_batch_plans_total"),
				"{{profile}} {{result}}").unless("no profile plans batches"),
			graph(12, "Time of a scheduling attempt", seconds, counted,
				"Half of the attempts took less, and 99 of 100.",
				quantile(0.5, "result", attempts), "median {{result}}",
				quantile(0.99, "result", attempts), "99 % {{result}}"),
			graph(12, "Records of decisions", minutes, counted,
				"Sent to the controller, refused by it, or dropped because too many waited. Reports lack the "+
					"savings of what was dropped.", perMinute("outcome", "kubenergy_records_total"), "{{outcome}}"),
		}},
		{"Shadow mode", []panel{
			graph(12, "Decisions that were not carried out", minutes, counted,
				"What would have been done with new work of namespaces in mode shadow or advise, by rule.",
				perMinute("rule, outcome", "kubenergy_shadow_decisions_total"+ofNS),
				"{{rule}}: {{outcome}}").unless("every namespace with work enforces, or is off"),
			bars(12, "Emissions that holding would have avoided", grams, estimated,
				"In the range that is shown, at a nominal power per requested core.",
				in("namespace, signal", "kubenergy_shadow_saved_carbon_grams_total"+ofNS),
				"{{namespace}} {{signal}}").unless("every namespace with work enforces, or is off"),
		}},
	},
}

const attempts = `scheduler_scheduling_attempt_duration_seconds`

var savingsBoard = dashboard{
	name: "savings", title: "Energy, carbon and cost", variables: []object{namespaces, nodes, signal},
	text: "What work used, emitted and cost, and what that saves against starting everything at once. Finished pods " +
		"of namespaces that have opted in count when they end; containers are those of nodes with an agent.",
	rows: []row{
		{"In the range that is shown", []panel{
			stat(5, "Energy", kWh, booked, "Of finished pods, PUE included.",
				"sum(increase("+workloadEnergy+ofNS+"[$__range])) / 3.6e6", ""),
			stat(5, "Emissions", grams, booked,
				"Of finished pods, in grams of CO2e, at the mean intensity of each interval.",
				"sum(increase("+workloadCarbon+carbon+"[$__range]))", ""),
			stat(5, "Emissions saved", grams, estimated,
				"The same energy, earlier by as long as each Job was held, less what it emitted.",
				"sum(increase("+otherwise+carbon+"[$__range])) - sum(increase("+workloadCarbon+carbon+"[$__range]))",
				""),
			stat(5, "Share of emissions saved", share, estimated,
				"Of what would have been emitted if nothing had been held.",
				"1 - sum(increase("+workloadCarbon+carbon+"[$__range])) / (sum(increase("+otherwise+carbon+
					"[$__range])) > 0)", ""),
			stat(4, "Derived from meters", share, counted,
				"Share of that energy which was derived from a meter. The rest was estimated by a model.",
				"(sum(increase(kubenergy_workload_energy_quality_joules_total"+
					`{namespace=~"$namespace",quality="derived"}[$__range])) or vector(0)) / `+
					"(sum(increase(kubenergy_workload_energy_quality_joules_total"+ofNS+"[$__range])) > 0)", ""),
			stat(8, "Cost", plain, booked,
				"Of the electricity of finished pods since the controller that leads began, in the currency named.",
				"sum by (currency) (kubenergy_workload_cost"+ofNS+")", "{{currency}}"),
			stat(8, "Cost saved", plain, estimated,
				"Since the controller that leads began, against starting everything at once.",
				"sum by (currency) (kubenergy_workload_counterfactual_cost"+ofNS+
					") - sum by (currency) (kubenergy_workload_cost"+ofNS+")", "{{currency}}"),
			stat(8, "Pods not wholly accounted for", plain, counted,
				"Finished pods in the range that is shown for which something is not known, by what is lacking.",
				in("lacks", "kubenergy_workload_unaccounted_total"),
				"{{lacks}}").unless("every finished pod was accounted for"),
		}},
		{"By namespace", []panel{
			bars(8, "Energy", kWh, booked, "Of finished pods in the range that is shown, PUE included.",
				in("namespace", workloadEnergy+ofNS)+" / 3.6e6", "{{namespace}}"),
			bars(8, "Emissions", grams, booked, "Of finished pods in the range that is shown.",
				in("namespace", workloadCarbon+carbon), "{{namespace}}"),
			bars(8, "Emissions saved", grams, estimated,
				"In the range that is shown, against starting everything at once.",
				in("namespace", otherwise+carbon)+" - "+in("namespace", workloadCarbon+carbon), "{{namespace}}"),
			graph(12, "Power of containers", watts, metered,
				"Containers that run now, on nodes with an agent; without PUE. Those whose names are not known "+
					"yet have an empty name.",
				rate("namespace", `kubenergy_container_energy_joules_total{namespace=~"$namespace",node=~"$node"}`),
				"{{namespace}}").stack(),
			graph(12, "Emissions, and what they would have been", grams, booked,
				"Of finished pods, since the controller that leads began.",
				"sum("+workloadCarbon+carbon+")", "emitted",
				"sum("+otherwise+carbon+")", "if nothing had been held"),
		}},
		{"By node", []panel{
			bars(12, "Energy", kWh, metered, "What agents metered in the range that is shown.",
				in("node", "kubenergy_node_energy_joules_total"+ofNode)+" / 3.6e6", "{{node}}"),
			graph(12, "Power", watts, metered, "What agents meter.",
				rate("node", "kubenergy_node_energy_joules_total"+ofNode), "{{node}}").stack(),
		}},
		{"The grid", []panel{
			graph(8, "Carbon intensity", "suffix: g/kWh", provided, "What is believed now, by zone.",
				most("zone, signal, quality", "kubenergy_grid_carbon_intensity_grams_per_kilowatthour"),
				"{{zone}} {{signal}} ({{quality}})"),
			graph(8, "Price", "suffix: /kWh", provided, "What is believed now, by zone, in the currency named.",
				most("zone, currency", "kubenergy_electricity_price_per_kilowatthour"), "{{zone}} {{currency}}"),
			graph(8, "Error of forecasts", share, counted,
				"Mean absolute error of a day's forecasts of an hour's carbon intensity, by how long before it "+
					"they were made.",
				"sum by (zone, horizon) (increase(kubenergy_forecast_error_ratio_sum[1d])) / "+
					"(sum by (zone, horizon) (increase(kubenergy_forecast_error_ratio_count[1d])) > 0)",
				"{{zone}} {{horizon}}").unless("no hour that was forecast is over"),
		}},
	},
}

var tenantsBoard = dashboard{
	name: "tenants", title: "Tenants and budgets", variables: []object{namespaces, signal},
	text: "What each namespace used, and what is left of its budgets.",
	rows: []row{
		{"Budgets", []panel{
			bars(12, "Budgets used", share, booked,
				"Share of each limit that is used in its period; it goes on beyond 100 %.",
				most("namespace, budget, workload, resource", "kubenergy_budget_usage_ratio"+ofNS),
				"{{namespace}}/{{budget}} {{workload}} {{resource}}").unless(noBudget).redFrom(1),
			graph(12, "Budgets used, over time", share, booked, "The same.",
				most("namespace, budget, workload, resource", "kubenergy_budget_usage_ratio"+ofNS),
				"{{namespace}}/{{budget}} {{workload}} {{resource}}").unless(noBudget),
			bars(8, "Warnings", plain, counted, "Actions below 100 %, in the range that is shown.",
				in("namespace, action", "kubenergy_budget_warnings_total"+ofNS),
				"{{namespace}} {{action}}").unless("no budget has warned"),
			bars(8, "Used up", plain, counted, "Actions because a budget was used up, in the range that is shown.",
				in("namespace, owner_kind, action", "kubenergy_budget_exceeded_total"+ofNS),
				"{{namespace}} {{owner_kind}} {{action}}").unless("no budget is used up"),
			bars(8, "Jobs suspended", plain, counted, "In the range that is shown.",
				in("namespace", "kubenergy_budget_suspended_jobs_total"+ofNS),
				"{{namespace}}").unless("no budget has suspended a Job"),
		}},
		{"Use", []panel{
			bars(8, "Energy", kWh, booked, "Of finished pods in the range that is shown, PUE included.",
				in("namespace", workloadEnergy+ofNS)+" / 3.6e6", "{{namespace}}"),
			bars(8, "Emissions", grams, booked, "Of finished pods in the range that is shown.",
				in("namespace", workloadCarbon+carbon), "{{namespace}}"),
			bars(8, "Cost", plain, booked, "Of finished pods since the controller that leads began.",
				"sum by (namespace, currency) (kubenergy_workload_cost"+ofNS+")", "{{namespace}} {{currency}}"),
			graph(12, "Power of containers", watts, metered,
				"Containers that run now, on nodes with an agent; without PUE.",
				rate("namespace", "kubenergy_container_energy_joules_total"+ofNS), "{{namespace}}").stack(),
			graph(12, "Energy by quality", watts, counted,
				"Energy of finished pods per time, by where it comes from. A pod counts when it ends.",
				rate("quality", "kubenergy_workload_energy_quality_joules_total"+ofNS), "{{quality}}").stack(),
			bars(8, "Finished pods", plain, counted, "Accounted for in the range that is shown.",
				in("namespace", "kubenergy_workload_finished_total"+ofNS), "{{namespace}}"),
			bars(8, "Run time", seconds, counted, "Of these pods.",
				in("namespace", "kubenergy_workload_runtime_seconds_total"+ofNS), "{{namespace}}"),
			bars(8, "Jobs held now", plain, counted, "Jobs that wait for a better hour.",
				most("namespace", "kubenergy_held_jobs"+ofNS), "{{namespace}}").unless("nothing is held"),
		}},
	},
}

const noBudget = "there is no EnergyBudget"

var holdsBoard = dashboard{
	name: "holds", title: "Holds", variables: []object{namespaces},
	text: "What waits, what was let go, and whether it was in time.",
	rows: []row{
		{"Now", []panel{
			stat(6, "Held", plain, counted, "Jobs and bare pods that wait.",
				most("kind", "kubenergy_held"), "{{kind}}"),
			stat(6, "Let go", plain, counted,
				"In the range that is shown, by what brought it about; DeadlineForced came before every limit.",
				in("cause", "kubenergy_releases_total"), "{{cause}}"),
			stat(6, "Overdue", plain, counted,
				"Jobs past their deadline that no scheduler had let go and the controller did, in the range that "+
					"is shown. Anything above 0 deserves a look at the schedulers.",
				in("result", "kubenergy_overdue_releases_total"),
				"{{result}}").unless("no Job was forgotten by the schedulers").redFrom(1),
			stat(6, "Last turn of the hold loop", seconds, counted,
				"How long ago it began; after two minutes the process ends.",
				"max(kubenergy_hold_turn_age_seconds)", "").redFrom(60),
		}},
		{"Over time", []panel{
			graph(12, "Held", plain, counted, "Jobs and bare pods that wait.",
				most("kind", "kubenergy_held"), "{{kind}}"),
			graph(12, "Jobs held, by namespace", plain, counted, "As the controller sees them.",
				most("namespace", "kubenergy_held_jobs"+ofNS), "{{namespace}}").unless("nothing is held").stack(),
			graph(12, "Let go", minutes, counted, "Jobs and pods per minute, by what brought it about.",
				perMinute("kind, cause", "kubenergy_releases_total"), "{{kind}} {{cause}}"),
			graph(12, "On their way", plain, counted,
				"Let go and not started yet, and how many may be before the next waits. Deadlines do not wait.",
				most("kind", "kubenergy_releases_in_flight"), "{{kind}} on their way",
				most("kind", "kubenergy_release_window"), "{{kind}} allowed"),
			graph(12, "How long work was held", seconds, counted,
				"Of what was let go: half was held for less, and 9 of 10.",
				quantile(0.5, "kind", "kubenergy_hold_seconds"), "median {{kind}}",
				quantile(0.9, "kind", "kubenergy_hold_seconds"), "90 % {{kind}}"),
			graph(12, "Let go later than planned", seconds, counted,
				"99 of 100 were let go at most so long after their planned start. Early ones do not count.",
				quantile(0.99, "kind", "kubenergy_release_lateness_seconds"), "99 % {{kind}}"),
			graph(12, "Started after the deadline", seconds, counted,
				"99 of 100 had a node at most so long after their deadline; 0 if before.",
				quantile(0.99, "kind", "kubenergy_start_lateness_seconds"), "99 % {{kind}}"),
			graph(12, "Notes to be written", plain, counted,
				"Annotations, conditions and events on held work that wait for the API server.",
				"max(kubenergy_hold_notes_waiting)", "notes"),
		}},
	},
}

var healthBoard = dashboard{
	name: "health", title: "Health", variables: []object{nodes},
	text: "Whether the parts of KubEnergy work: scheduler, controller, ledger, intake and agents.",
	rows: []row{
		{"Now", []panel{
			stat(6, "Processes that answer", plain, counted, "Replicas and agents that Prometheus reaches.",
				`sum by (job) (up{job=~"kubenergy-.*"})`, "{{job}}"),
			stat(6, "Alerts", plain, counted, "Alerts of the chart that fire.",
				`count by (alertname) (ALERTS{alertname=~"KubEnergy.*",alertstate="firing"})`,
				"{{alertname}}").unless("nothing is wrong").redFrom(1),
			stat(6, "Panics", plain, counted,
				"In the range that is shown, by part, where one has panicked. Each costs one object or one decision.",
				in("part", "kubenergy_panics_total"), "{{part}}").redFrom(1),
			stat(6, "Breaker", plain, counted,
				"1: three panics came within a minute, and for ten the scheduler decides as stock Kubernetes does.",
				"max by (job) (kubenergy_panics_breaker_open)", "{{job}}").redFrom(1),
			stat(6, "Ledger writable", plain, counted, "0: nothing is acknowledged, and agents keep what they have.",
				"min(kubenergy_ledger_writable)", ""),
			stat(6, "Ledger gaps", plain, counted,
				"Batches in the range that is shown before which numbers are missing.",
				"sum(increase(kubenergy_ledger_gaps_total[$__range]))", "").redFrom(1),
			stat(6, "Age of live watts", seconds, counted,
				"Of the youngest reading that the scheduler has; -1 if there is none.",
				"min(kubenergy_live_age_seconds)", "").redFrom(120),
			stat(6, "Leases held", plain, counted, "1 where a process of the pair holds it.",
				`max by (name) (leader_election_master_status{name=~"kubenergy-.*"})`, "{{name}}"),
		}},
		{"Signals", []panel{
			graph(8, "Age of signals", seconds, "By the source's own timestamp.", "Of what is believed, by zone.",
				most("zone, quantity", "kubenergy_signal_age_seconds"), "{{zone}} {{quantity}}"),
			graph(8, "Requests to sources", minutes, counted, "Tries included, by outcome.",
				perMinute("source, outcome", "kubenergy_signal_requests_total"),
				"{{source}} {{outcome}}").unless("all sources are static or files"),
			graph(8, "Answers not believed", minutes, counted, "By source and reason.",
				perMinute("source, reason", "kubenergy_signal_rejected_total"),
				"{{source}} {{reason}}").unless("every answer was believed"),
		}},
		{"Ledger and intake", []panel{
			graph(8, "Batches of agents", minutes, counted, "Per minute, by what became of them.",
				perMinute("result", "kubenergy_ingest_batches_total"), "{{result}}"),
			graph(8, "Time until a batch is acknowledged", seconds, counted, "99 of 100 took less.",
				"histogram_quantile(0.99, sum by (le) (rate(kubenergy_ingest_seconds_bucket[$__rate_interval])))",
				"99 %"),
			graph(8, "Energy booked", watts, booked, "Per time, of guests too.",
				"sum(rate(kubenergy_ingest_joules_total[$__rate_interval]))", "booked"),
			graph(8, "Bookings", minutes, counted,
				"Per minute; again had been booked before, refused contradicts what is booked.",
				perMinute("result", "kubenergy_ledger_bookings_total"), "{{result}}"),
			graph(8, "Time of a commit", seconds, counted, "Mean of the transactions of bookings.",
				`sum(rate(kubenergy_ledger_commit_seconds_total[$__rate_interval])) / `+
					`(sum(rate(kubenergy_ledger_commits_total[$__rate_interval])) > 0)`, "mean"),
			graph(8, "Waiting", plain, counted,
				"Batches that wait to be written, and that are on disk and not in sums yet.",
				"max(kubenergy_ledger_waiting_bookings)", "to be written",
				"max(kubenergy_ledger_journal_bookings)", "in the journal"),
			graph(8, "Size of the ledger", bytesIn, counted, "On disk.", "max(kubenergy_ledger_bytes)", "ledger"),
			graph(8, "Batches that are doubted", minutes, counted,
				"Implausible ones are booked and not decided by; late ones count for no budget; those with a gap "+
					"follow lost ones; those ahead are of clocks that run fast.",
				"60 * sum(rate(kubenergy_ingest_implausible_total[$__rate_interval]))", "implausible",
				"60 * sum(rate(kubenergy_ingest_late_total[$__rate_interval]))", "late",
				"60 * sum(rate(kubenergy_ingest_gaps_total[$__rate_interval]))", "gap",
				"60 * sum(rate(kubenergy_ingest_ahead_total[$__rate_interval]))", "ahead"),
			graph(8, "Requests to the HTTP API", minutes, counted, "By route and code.",
				perMinute("route, code", "kubenergy_api_requests_total"),
				"{{route}} {{code}}").unless("neither scheduler nor people ask the controller"),
		}},
		{"Agents", []panel{
			graph(8, "Readable meters", plain, counted,
				"1: the last reading of this kind of meter succeeded. Meters that are not the root are here too.",
				"min by (node, meter) (kubenergy_agent_meter_readable"+ofNode+")", "{{node}} {{meter}}"),
			graph(8, "Time of a tick", seconds, counted, "99 of 100 took less.",
				quantile(0.99, "node", "kubenergy_agent_tick_duration_seconds"), "{{node}}"),
			graph(8, "Lost ticks", minutes, counted,
				"Ticks per minute that did not happen because one before took too long.",
				perMinute("node", "kubenergy_agent_lost_ticks_total"+ofNode), "{{node}}"),
			graph(8, "Oldest batch not acknowledged", seconds, counted, "None is lost while it waits.",
				most("node", "kubenergy_agent_delivery_oldest_age_seconds"+ofNode), "{{node}}"),
			graph(8, "Failed deliveries", minutes, counted, "By reason.",
				perMinute("node, reason", "kubenergy_agent_delivery_failures_total"+ofNode),
				"{{node}} {{reason}}"),
			graph(8, "Consumers", plain, counted, "Containers, machines and other groups with series of their own.",
				most("node, state", "kubenergy_agent_consumers"+ofNode), "{{node}} {{state}}"),
		}},
		{"Processes", []panel{
			graph(8, "Memory", bytesIn, counted, "Resident, of the largest process.",
				`max by (job) (process_resident_memory_bytes{job=~"kubenergy-.*"})`, "{{job}}"),
			graph(8, "CPU", "none", counted, "Cores, of all replicas and agents.",
				rate("job", `process_cpu_seconds_total{job=~"kubenergy-.*"}`), "{{job}}"),
			graph(8, "The scheduler's cache", plain, counted,
				"Nodes, pods and assumed pods that kube-scheduler decides on.",
				most("type", `scheduler_cache_size{job="kubenergy-scheduler"}`), "{{type}}"),
			graph(12, "Live nodes of the scheduler", plain, counted,
				"Nodes of the last answer, and those that were left out, by why.",
				most("state", "kubenergy_live_nodes"), "{{state}}"),
			graph(12, "Requests refused", minutes, counted,
				"Requests of people and programs to the controller, by reason.",
				perMinute("reason", "kubenergy_access_refused_total"),
				"{{reason}}").unless("no caller lacks a right"),
		}},
	},
}
