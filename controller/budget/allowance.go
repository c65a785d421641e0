package budget

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/ledger"
)

// registry remembers which Jobs and pods have a budget of their own.
type registry struct {
	mu   sync.Mutex
	jobs map[types.NamespacedName]bool
	pods map[types.NamespacedName]bool
}

func newRegistry() *registry {
	return &registry{jobs: map[types.NamespacedName]bool{}, pods: map[types.NamespacedName]bool{}}
}

func (r *registry) of(o client.Object) map[types.NamespacedName]bool {
	if _, job := o.(*batchv1.Job); job {
		return r.jobs
	}
	return r.pods
}

func (r *registry) saw(o client.Object, has bool) {
	key := client.ObjectKeyFromObject(o)
	r.mu.Lock()
	defer r.mu.Unlock()
	if all := r.of(o); has {
		all[key] = true
	} else {
		delete(all, key)
	}
}

func (r *registry) lost(o client.Object) { r.saw(o, false) }

func (r *registry) list() (jobs, pods []types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.jobs {
		jobs = append(jobs, key)
	}
	for key := range r.pods {
		pods = append(pods, key)
	}
	return jobs, pods
}

// allowance is what one Job, or one pod that no Job runs, may use for itself.
type allowance struct {
	object   client.Object
	job      *batchv1.Job // nil: it is a pod
	budget   string       // name of the EnergyBudget, or Own
	label    string
	id       string // differs where the limits do: a raised limit is one of which nothing was done yet
	limits   v1alpha1.BudgetLimits
	actions  []v1alpha1.BudgetAction
	gardener bool
	use      *use         // nil: not known
	siblings []*allowance // all of the same object
}

// maySuspend reports whether it is one that suspends.
func (a *allowance) maySuspend() bool {
	return a.job != nil && slices.ContainsFunc(a.actions, func(x v1alpha1.BudgetAction) bool {
		return x.Do == v1alpha1.DeedSuspend
	})
}

func (a *allowance) workload() string {
	if a.job != nil {
		return "Job/" + a.job.Name
	}
	return "Pod/" + a.object.GetName()
}

func (a *allowance) kind() string {
	kind, _, _ := strings.Cut(a.workload(), "/")
	return kind
}

// percent is of what is known.
func (a *allowance) percent() float64 {
	if a.use == nil {
		return 0
	}
	return rounded(a.use.percent(&a.limits))
}

// suspends reports whether the Job is kept suspended: what is used up stays so, whether it can be asked just now or
// not.
func (a *allowance) suspends() bool {
	taken := readTaken(a.object.GetAnnotations()[kube.AnnotationBudgetActions])
	return slices.ContainsFunc(a.actions, func(x v1alpha1.BudgetAction) bool {
		if x.Do != v1alpha1.DeedSuspend {
			return false
		}
		_, begun := taken[a.key(&x)]
		return begun && (a.use == nil || a.percent() >= float64(threshold(&x)))
	})
}

// allowances returns everything that has a budget for itself, if that is listed, with what it used, if there is no
// error. The ledger is asked as long as asking lasts.
func (e *Engine) allowances(ctx, asking context.Context, s *scene) (all []*allowance, listed bool, err error) {
	jobs, pods, namespaces, err := e.candidates(ctx, s)
	if err != nil {
		return nil, false, err
	}
	byNamespace := map[string][]*v1alpha1.EnergyBudget{}
	for _, b := range s.each {
		byNamespace[b.Namespace] = append(byNamespace[b.Namespace], b)
	}
	var workloads []*workload
	for _, j := range jobs {
		workloads = append(workloads, jobOf(j))
	}
	for _, p := range pods {
		workloads = append(workloads, podOf(p))
	}
	for _, w := range workloads {
		namespace := w.object.GetNamespace()
		all = append(all, e.allowancesOf(w, byNamespace[namespace], namespaces[namespace])...)
	}
	return all, true, e.askOwn(asking, all, s.now)
}

// workload is a Job, or a pod that no Job runs.
type workload struct {
	object      client.Object
	job         *batchv1.Job // nil: it is a pod
	kind        string       // workload type
	owners      kube.Owners
	annotations []map[string]string
}

func jobOf(j *batchv1.Job) *workload {
	work, _ := kube.ReadJob(j) // what makes no sense counts as not said
	return &workload{
		object: j, job: j, kind: work.Type, owners: work.Owners,
		annotations: []map[string]string{j.Annotations, j.Spec.Template.Annotations},
	}
}

func podOf(p *v1.Pod) *workload {
	work, _ := kube.ReadPod(p)
	return &workload{object: p, kind: work.Type, owners: work.Owners, annotations: []map[string]string{p.Annotations}}
}

// candidates returns the Jobs and pods that may have a budget for themselves: those that are marked, those that are
// suspended for it, and all in namespaces that give one to each.
func (e *Engine) candidates(ctx context.Context, s *scene) (
	jobs []*batchv1.Job, pods []*v1.Pod, marks map[string]*kube.NamespaceMarks, err error,
) {
	var namespaces v1.NamespaceList
	if err := e.o.Client.List(ctx, &namespaces, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, nil, fmt.Errorf("listing namespaces: %w", err)
	}
	marks = map[string]*kube.NamespaceMarks{}
	all := map[string]bool{}
	for i := range namespaces.Items {
		n := &namespaces.Items[i]
		m := &kube.NamespaceMarks{Name: n.Name, Labels: n.Labels, Annotations: n.Annotations}
		if m.GivesAllowance() {
			marks[n.Name], all[n.Name] = m, true
		}
	}
	for _, b := range s.each {
		all[b.Namespace] = true
	}
	seenJobs, seenPods := map[types.UID]bool{}, map[types.UID]bool{}
	addJob := func(j *batchv1.Job) {
		if !seenJobs[j.UID] {
			seenJobs[j.UID] = true
			jobs = append(jobs, j)
		}
	}
	addPod := func(p *v1.Pod) {
		if !seenPods[p.UID] && runByNoJob(p) {
			seenPods[p.UID] = true
			pods = append(pods, p)
		}
	}
	for _, namespace := range sortedKeys(all) {
		if err := e.inNamespace(ctx, namespace, addJob, addPod); err != nil {
			return nil, nil, nil, err
		}
	}
	if err := e.marked(ctx, addJob, addPod); err != nil {
		return nil, nil, nil, err
	}
	for _, j := range s.marks.jobs { // whatever we were told of so far
		if j.Labels[kube.LabelBudgetSuspended] == kube.OwnBudget {
			addJob(j)
		}
	}
	return jobs, pods, marks, nil
}

// marked reads the Jobs and pods of which we were told that they have a budget of their own.
func (e *Engine) marked(ctx context.Context, job func(*batchv1.Job), pod func(*v1.Pod)) error {
	jobs, pods := e.own.list()
	for _, key := range jobs {
		j := &batchv1.Job{}
		if err := e.o.Client.Get(ctx, key, j); err == nil {
			job(j)
		} else if !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading Job %s: %w", key, err)
		}
	}
	for _, key := range pods {
		p := &v1.Pod{}
		if err := e.o.Client.Get(ctx, key, p); err == nil {
			pod(p)
		} else if !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading pod %s: %w", key, err)
		}
	}
	return nil
}

func runByNoJob(p *v1.Pod) bool {
	owners := kube.PodOwners(p)
	return !strings.HasPrefix(owners.Owner, "Job/")
}

func (e *Engine) inNamespace(ctx context.Context, namespace string, job func(*batchv1.Job), pod func(*v1.Pod)) error {
	var jobs batchv1.JobList
	if err := e.o.Client.List(ctx, &jobs, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing Jobs: %w", err)
	}
	for i := range jobs.Items {
		job(&jobs.Items[i])
	}
	var pods v1.PodList
	if err := e.o.Client.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	for i := range pods.Items {
		pod(&pods.Items[i])
	}
	return nil
}

// allowancesOf returns what one object may use: what its annotations or its namespace say, and each budget per
// workload.
func (e *Engine) allowancesOf(w *workload, each []*v1alpha1.EnergyBudget,
	marks *kube.NamespaceMarks,
) (all []*allowance) {
	o, job := w.object, w.job
	own, ok, err := kube.ReadAllowance(marks, w.kind, w.annotations...)
	if err != nil {
		e.o.Log.Debug("a budget that makes no sense counts as absent", "namespace", o.GetNamespace(), "name",
			o.GetName(), "error", err)
	}
	if ok {
		all = append(all, &allowance{
			object: o, job: job, budget: kube.OwnBudget, label: kube.OwnBudget, id: fmt.Sprint(own.KWh),
			gardener: own.Gardener,
			limits:   v1alpha1.BudgetLimits{EnergyKWh: &own.KWh},
			actions:  withEvent(own.Deed),
		})
	}
	for _, b := range each {
		if w.owners.InScope(&b.Spec.Scope) {
			all = append(all, &allowance{
				object: o, job: job, budget: b.Name, label: kube.BudgetLabel(b.Name), limits: b.Spec.Limits,
				actions: b.Spec.Actions,
				id:      string(b.UID) + limitsID(&b.Spec.Limits),
			})
		}
	}
	for _, a := range all {
		a.siblings = all
	}
	return all
}

// withEvent adds what Compute Gardener does whatever it is told to do: it says so in an event.
func withEvent(do v1alpha1.BudgetDeed) []v1alpha1.BudgetAction {
	actions := []v1alpha1.BudgetAction{{At: whole, Do: do}}
	if do != v1alpha1.DeedEvent {
		actions = append(actions, v1alpha1.BudgetAction{At: whole, Do: v1alpha1.DeedEvent})
	}
	return actions
}

func limitsID(l *v1alpha1.BudgetLimits) string {
	text := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprint(*v)
	}
	id := text(l.EnergyKWh) + " " + text(l.CarbonGrams) + " " + signalOf(l)
	if l.Cost != nil {
		id += " " + text(&l.Cost.Amount) + l.Cost.Currency
	}
	return id
}

// maxNames is how many owners or pods one query names.
const maxNames = 500

// askOwn asks what was used since each Job or pod was made.
func (e *Engine) askOwn(ctx context.Context, all []*allowance, now time.Time) error {
	byOwner, byPod := map[string]map[string][]*allowance{}, map[string][]*allowance{}
	var owners, pods []string
	for _, a := range all {
		name, namespace := a.workload(), a.object.GetNamespace()
		if p, ok := a.object.(*v1.Pod); ok {
			if o := kube.PodOwners(p); o.Owner != name { // what its owner uses is not its own
				pods = append(pods, string(p.UID))
				byPod[string(p.UID)] = append(byPod[string(p.UID)], a)
				continue
			}
		}
		if byOwner[name] == nil {
			byOwner[name] = map[string][]*allowance{}
			owners = append(owners, name)
		}
		byOwner[name][namespace] = append(byOwner[name][namespace], a)
	}
	slices.Sort(owners)
	for chunk := range slices.Chunk(owners, maxNames) {
		var some []*allowance
		for _, owner := range chunk {
			for _, x := range byOwner[owner] {
				some = append(some, x...)
			}
		}
		if err := e.askOwners(ctx, chunk, some, now); err != nil {
			return err
		}
	}
	slices.Sort(pods)
	for chunk := range slices.Chunk(slices.Compact(pods), maxNames) {
		if err := e.askPods(ctx, chunk, byPod, now); err != nil {
			return err
		}
	}
	return nil
}

// since returns when the first of some was made.
func since(all []*allowance) time.Time {
	var first time.Time
	for _, a := range all {
		if t := a.object.GetCreationTimestamp().Time; first.IsZero() || t.Before(first) {
			first = t
		}
	}
	return first
}

func (e *Engine) askOwners(ctx context.Context, owners []string, all []*allowance, now time.Time) error {
	asked := e.o.Now()
	rows, err := e.owned(ctx, owners, nil, since(all), now)
	if err != nil {
		return err
	}
	var recent []*allowance
	older := map[time.Time][]*allowance{}
	for _, a := range all {
		row := rows[a.account()]
		// Another one had this name before: it is asked about the time since this one was made, to the hour.
		switch made := a.made(); {
		case row.First.IsZero() || !row.First.Before(made):
			a.use = &use{Row: row, asOf: asked}
		case now.Sub(made) < hourly:
			recent = append(recent, a)
		default:
			older[made] = append(older[made], a)
		}
	}
	if err := e.askByHour(ctx, recent, now, asked); err != nil {
		return err
	}
	for made, some := range older {
		names, namespaces := namesOf(some)
		rows, err := e.owned(ctx, names, namespaces, made, now)
		if err != nil {
			return err
		}
		for _, a := range some {
			a.use = &use{Row: rows[a.account()], asOf: asked}
		}
	}
	return nil
}

// hourly is up to which age Jobs whose names were used before are asked about hour by hour, all in one query. That of
// older ones would have too many rows: those that were made in the same hour share a query.
const hourly = 48 * time.Hour

// account is how the ledger calls what is charged: namespace and owner.
func (a *allowance) account() [2]string { return [2]string{a.object.GetNamespace(), a.workload()} }

// made is the hour in which it was made; the ledger knows no shorter times for long.
func (a *allowance) made() time.Time {
	return a.object.GetCreationTimestamp().UTC().Truncate(time.Hour)
}

func namesOf(all []*allowance) (owners, namespaces []string) {
	o, n := map[string]bool{}, map[string]bool{}
	for _, a := range all {
		o[a.workload()], n[a.object.GetNamespace()] = true, true
	}
	return sortedKeys(o), sortedKeys(n)
}

// askByHour asks what several used, each since the hour in which it was made.
func (e *Engine) askByHour(ctx context.Context, all []*allowance, now, asked time.Time) error {
	if len(all) == 0 {
		return nil
	}
	byAccount := map[[2]string][]*allowance{}
	for _, a := range all {
		a.use = nil
		byAccount[a.account()] = append(byAccount[a.account()], a)
	}
	owners, namespaces := namesOf(all)
	p := period{from: since(all)}.asked(now)
	answer, err := e.query(ctx, &ledger.Query{
		From: p.from.Truncate(time.Hour), To: p.to, GroupBy: []ledger.Dimension{
			ledger.ByNamespace, ledger.ByOwner, ledger.ByHour,
		},
		Owners: owners, Namespaces: namespaces, Kinds: []ledger.Kind{ledger.Workload},
	})
	if err != nil {
		return err
	}
	used := map[*allowance]*use{}
	for _, a := range all {
		used[a] = &use{asOf: asked}
	}
	for i := range answer.Rows {
		row := &answer.Rows[i]
		if len(row.Key) != len(answer.GroupBy) {
			continue
		}
		hour, err := time.Parse(time.RFC3339, row.Key[2])
		if err != nil {
			return fmt.Errorf("the ledger's answer: %w", err)
		}
		for _, a := range byAccount[[2]string{row.Key[0], row.Key[1]}] {
			if !hour.Before(a.made()) {
				used[a].Include(row)
			}
		}
	}
	for a, u := range used {
		a.use = u
	}
	return nil
}

func (e *Engine) owned(ctx context.Context, owners, namespaces []string, from,
	now time.Time,
) (map[[2]string]ledger.Row, error) {
	p := period{from: from}.asked(now)
	answer, err := e.query(ctx, &ledger.Query{
		From: p.from.Truncate(time.Hour), To: p.to, GroupBy: []ledger.Dimension{ledger.ByNamespace, ledger.ByOwner},
		Owners: owners, Namespaces: namespaces, Kinds: []ledger.Kind{ledger.Workload},
	})
	if err != nil {
		return nil, err
	}
	rows := map[[2]string]ledger.Row{}
	for i := range answer.Rows {
		if row := &answer.Rows[i]; len(row.Key) == 2 {
			rows[[2]string{row.Key[0], row.Key[1]}] = *row
		}
	}
	return rows, nil
}

func (e *Engine) askPods(ctx context.Context, uids []string, byUID map[string][]*allowance, now time.Time) error {
	var all []*allowance
	for _, uid := range uids {
		all = append(all, byUID[uid]...)
	}
	p := period{from: since(all)}.asked(now)
	asked := e.o.Now()
	answer, err := e.query(ctx, &ledger.Query{
		From: p.from, To: p.to, GroupBy: []ledger.Dimension{ledger.ByUID}, Pods: uids,
	})
	if err != nil {
		return err
	}
	for _, a := range all {
		a.use = &use{asOf: asked}
	}
	for i := range answer.Rows {
		if row := &answer.Rows[i]; len(row.Key) == 1 {
			for _, a := range byUID[row.Key[0]] {
				a.use.Include(row)
			}
		}
	}
	return nil
}
