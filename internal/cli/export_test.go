package cli

import "time"

// HideProgress keeps programs that this process plays from reporting progress, which slow machines would do.
func HideProgress() { silentFor = 24 * time.Hour }
