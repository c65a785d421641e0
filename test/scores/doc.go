// Package scores holds kube-scheduler's own framework, with all of its plugins, against the promise that ours changes
// no score where no pod asks for it or where nothing is known.
package scores
