package workload

import "github.com/kubenergy/kubenergy/internal/energy"

// Profiles returns the power profiles of all known servers, oldest first.
func Profiles() []energy.Profile {
	var all []energy.Profile
	for i := range servers {
		all = append(all, *servers[i].profile())
	}
	return all
}
