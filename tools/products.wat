;; Products of float32 matrices, four numbers at a time: out = x @ w^T.
;;
;; `tiles` takes many rows of x, `vector` one. Rows lie one after another, and every count is a
;; multiple of the tile: the caller (products.js) pads with zeros. Pointers are bytes.
;;
;; npm run wasm writes products_wasm.js from this file.

(module
  (import "page" "memory" (memory 1))

  (func $sum (param $v v128) (result f32)
    (f32.add
      (f32.add (f32x4.extract_lane 0 (local.get $v)) (f32x4.extract_lane 1 (local.get $v)))
      (f32.add (f32x4.extract_lane 2 (local.get $v)) (f32x4.extract_lane 3 (local.get $v)))))

  ;; x (T, I), w (O, stride) of which the first I columns count, out (T, O); I and T are multiples
  ;; of 4, O of 2. A tile is 4 rows of x and 2 of w: its 8 sums stay in registers.
  (func (export "tiles")
    (param $x i32) (param $w i32) (param $out i32)
    (param $T i32) (param $I i32) (param $O i32) (param $stride i32)
    (local $t i32) (local $o i32) (local $to i32) (local $end i32) (local $line i32)
    (local $x0 i32)
    (local $x1 i32)
    (local $x2 i32)
    (local $x3 i32)
    (local $w0 i32) (local $b0 v128)
    (local $w1 i32) (local $b1 v128)
    (local $a v128)
    (local $s00 v128) (local $s01 v128)
    (local $s10 v128) (local $s11 v128)
    (local $s20 v128) (local $s21 v128)
    (local $s30 v128) (local $s31 v128)
    (local.set $I (i32.shl (local.get $I) (i32.const 2)))
    (local.set $stride (i32.shl (local.get $stride) (i32.const 2)))
    (local.set $line (i32.shl (local.get $O) (i32.const 2)))
    (loop $columns
      (local.set $t (i32.const 0))
      (local.set $x0 (local.get $x))
      (local.set $to (i32.add (local.get $out) (i32.shl (local.get $o) (i32.const 2))))
      (loop $rows
        (local.set $x1 (i32.add (local.get $x0) (local.get $I)))
        (local.set $x2 (i32.add (local.get $x1) (local.get $I)))
        (local.set $x3 (i32.add (local.get $x2) (local.get $I)))
        (local.set $w0 (local.get $w))
        (local.set $w1 (i32.add (local.get $w) (local.get $stride)))
        (local.set $s00 (v128.const f32x4 0 0 0 0))
        (local.set $s01 (v128.const f32x4 0 0 0 0))
        (local.set $s10 (v128.const f32x4 0 0 0 0))
        (local.set $s11 (v128.const f32x4 0 0 0 0))
        (local.set $s20 (v128.const f32x4 0 0 0 0))
        (local.set $s21 (v128.const f32x4 0 0 0 0))
        (local.set $s30 (v128.const f32x4 0 0 0 0))
        (local.set $s31 (v128.const f32x4 0 0 0 0))
        (local.set $end (i32.add (local.get $x0) (local.get $I)))
        (loop $inner
          (local.set $b0 (v128.load (local.get $w0)))
          (local.set $b1 (v128.load (local.get $w1)))
          (local.set $a (v128.load (local.get $x0)))
          (local.set $s00
            (f32x4.add (local.get $s00) (f32x4.mul (local.get $a) (local.get $b0))))
          (local.set $s01
            (f32x4.add (local.get $s01) (f32x4.mul (local.get $a) (local.get $b1))))
          (local.set $a (v128.load (local.get $x1)))
          (local.set $s10
            (f32x4.add (local.get $s10) (f32x4.mul (local.get $a) (local.get $b0))))
          (local.set $s11
            (f32x4.add (local.get $s11) (f32x4.mul (local.get $a) (local.get $b1))))
          (local.set $a (v128.load (local.get $x2)))
          (local.set $s20
            (f32x4.add (local.get $s20) (f32x4.mul (local.get $a) (local.get $b0))))
          (local.set $s21
            (f32x4.add (local.get $s21) (f32x4.mul (local.get $a) (local.get $b1))))
          (local.set $a (v128.load (local.get $x3)))
          (local.set $s30
            (f32x4.add (local.get $s30) (f32x4.mul (local.get $a) (local.get $b0))))
          (local.set $s31
            (f32x4.add (local.get $s31) (f32x4.mul (local.get $a) (local.get $b1))))
          (local.set $w0 (i32.add (local.get $w0) (i32.const 16)))
          (local.set $w1 (i32.add (local.get $w1) (i32.const 16)))
          (local.set $x1 (i32.add (local.get $x1) (i32.const 16)))
          (local.set $x2 (i32.add (local.get $x2) (i32.const 16)))
          (local.set $x3 (i32.add (local.get $x3) (i32.const 16)))
          (local.set $x0 (i32.add (local.get $x0) (i32.const 16)))
          (br_if $inner (i32.lt_u (local.get $x0) (local.get $end))))
        (f32.store offset=0 (local.get $to) (call $sum (local.get $s00)))
        (f32.store offset=4 (local.get $to) (call $sum (local.get $s01)))
        (local.set $to (i32.add (local.get $to) (local.get $line)))
        (f32.store offset=0 (local.get $to) (call $sum (local.get $s10)))
        (f32.store offset=4 (local.get $to) (call $sum (local.get $s11)))
        (local.set $to (i32.add (local.get $to) (local.get $line)))
        (f32.store offset=0 (local.get $to) (call $sum (local.get $s20)))
        (f32.store offset=4 (local.get $to) (call $sum (local.get $s21)))
        (local.set $to (i32.add (local.get $to) (local.get $line)))
        (f32.store offset=0 (local.get $to) (call $sum (local.get $s30)))
        (f32.store offset=4 (local.get $to) (call $sum (local.get $s31)))
        (local.set $to (i32.add (local.get $to) (local.get $line)))
        (local.set $x0 (local.get $x3))
        (local.set $t (i32.add (local.get $t) (i32.const 4)))
        (br_if $rows (i32.lt_u (local.get $t) (local.get $T))))
      (local.set $w
        (i32.add (local.get $w) (i32.shl (local.get $stride) (i32.const 1))))
      (local.set $o (i32.add (local.get $o) (i32.const 2)))
      (br_if $columns (i32.lt_u (local.get $o) (local.get $O)))))

  ;; x (I), w (O, I), out (O); I and O are multiples of 4. Four rows of w at a time.
  (func (export "vector")
    (param $x i32) (param $w i32) (param $out i32) (param $I i32) (param $O i32)
    (local $o i32) (local $at i32) (local $end i32) (local $a v128)
    (local $w0 i32) (local $s0 v128)
    (local $w1 i32) (local $s1 v128)
    (local $w2 i32) (local $s2 v128)
    (local $w3 i32) (local $s3 v128)
    (local.set $I (i32.shl (local.get $I) (i32.const 2)))
    (local.set $end (i32.add (local.get $x) (local.get $I)))
    (local.set $w0 (local.get $w))
    (loop $columns
      (local.set $w1 (i32.add (local.get $w0) (local.get $I)))
      (local.set $w2 (i32.add (local.get $w1) (local.get $I)))
      (local.set $w3 (i32.add (local.get $w2) (local.get $I)))
      (local.set $s0 (v128.const f32x4 0 0 0 0))
      (local.set $s1 (v128.const f32x4 0 0 0 0))
      (local.set $s2 (v128.const f32x4 0 0 0 0))
      (local.set $s3 (v128.const f32x4 0 0 0 0))
      (local.set $at (local.get $x))
      (loop $inner
        (local.set $a (v128.load (local.get $at)))
        (local.set $s0
          (f32x4.add (local.get $s0) (f32x4.mul (local.get $a) (v128.load (local.get $w0)))))
        (local.set $s1
          (f32x4.add (local.get $s1) (f32x4.mul (local.get $a) (v128.load (local.get $w1)))))
        (local.set $s2
          (f32x4.add (local.get $s2) (f32x4.mul (local.get $a) (v128.load (local.get $w2)))))
        (local.set $s3
          (f32x4.add (local.get $s3) (f32x4.mul (local.get $a) (v128.load (local.get $w3)))))
        (local.set $w0 (i32.add (local.get $w0) (i32.const 16)))
        (local.set $w1 (i32.add (local.get $w1) (i32.const 16)))
        (local.set $w2 (i32.add (local.get $w2) (i32.const 16)))
        (local.set $w3 (i32.add (local.get $w3) (i32.const 16)))
        (local.set $at (i32.add (local.get $at) (i32.const 16)))
        (br_if $inner (i32.lt_u (local.get $at) (local.get $end))))
      (f32.store offset=0 (local.get $out) (call $sum (local.get $s0)))
      (f32.store offset=4 (local.get $out) (call $sum (local.get $s1)))
      (f32.store offset=8 (local.get $out) (call $sum (local.get $s2)))
      (f32.store offset=12 (local.get $out) (call $sum (local.get $s3)))
      (local.set $w0 (local.get $w3))
      (local.set $out (i32.add (local.get $out) (i32.const 16)))
      (local.set $o (i32.add (local.get $o) (i32.const 4)))
      (br_if $columns (i32.lt_u (local.get $o) (local.get $O))))))
