package synthetic

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"

	"github.com/cespare/xxhash/v2"
	"k8s.io/apimachinery/pkg/types"
)

var (
	teams        = []string{"payments", "checkout", "search", "identity", "catalog", "shipping", "billing", "fraud", "media", "ledger", "pricing", "orders"}
	environments = []string{"prod", "staging", "dev", "canary"}
	nouns        = []string{"invoice", "cart", "session", "token", "image", "address", "refund", "coupon", "stock", "parcel", "profile", "report", "quote", "audit", "mail"}
	roles        = []string{"api", "worker", "cron", "gateway", "indexer", "cache", "proxy", "consumer"}
	featureFlags = []string{"NEW_CHECKOUT", "DARK_MODE", "FAST_PATH", "BATCHING", "RETRY_V2", "ASYNC_WRITES"}
)

// random returns numbers that depend only on what they are for.
func random(purpose string, i int) *rand.Rand {
	return rand.New(rand.NewPCG(xxhash.Sum64String(purpose), uint64(i)))
}

func pick(r *rand.Rand, from []string) string { return from[r.IntN(len(from))] }

// word tells the ith of something apart from all others.
func word(r *rand.Rand, i int) string { return fmt.Sprintf("%s%d", letters(r, 2), i) }

// letters returns random letters as in the names that API servers generate.
func letters(r *rand.Rand, n int) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(b)
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func uid(r *rand.Rand) types.UID {
	b := randomBytes(r, 16)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16]))
}

func digest(r *rand.Rand) string { return hex.EncodeToString(randomBytes(r, 32)) }

// address is one of those with as many digits as possible.
func address(r *rand.Rand) string {
	return fmt.Sprintf("10.%d.%d.%d", 100+r.IntN(156), 100+r.IntN(156), 100+r.IntN(156))
}
