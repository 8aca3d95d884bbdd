package fleet

import (
	"net/http"
	"time"
)

// LimitInTime is limitInTime with a shorter limit.
func LimitInTime(limit time.Duration, next http.RoundTripper) http.RoundTripper {
	return &timeLimit{limit: limit, next: next}
}
