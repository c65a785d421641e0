package intake

import (
	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// idleKinds are what energy that no consumer used is charged to, by the state of a machine that does no work.
var idleKinds = map[string]ledger.Kind{
	v1alpha1.PowerAsleep: ledger.Asleep, v1alpha1.PowerBooting: ledger.Booting,
}
