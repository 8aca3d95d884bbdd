package fleet

import (
	"net/http"
	"time"
)

// LimitInTime is limitInTime with a limit that a test can wait for.
func LimitInTime(limit time.Duration, next http.RoundTripper) http.RoundTripper {
	return &timeLimit{limit: limit, next: next}
}
