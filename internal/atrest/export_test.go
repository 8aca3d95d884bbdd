package atrest

import "time"

// SetNow replaces the clock.
func (k *Keys) SetNow(now func() time.Time) { k.now = now }
