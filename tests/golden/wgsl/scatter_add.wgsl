@group(0) @binding(0) var<storage, read> b0: array<i32>;
@group(0) @binding(1) var<storage, read_write> b1: array<atomic<u32>>;
var<private> rlx_zero: u32;
@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) rlx_group: vec3<u32>, @builtin(local_invocation_index) rlx_lane: u32) {
  rlx_zero = rlx_group.z;
  let rlx_flat = rlx_group.x;
  let g = i32(rlx_flat);
  let l = i32(rlx_lane);
  if ((((g * 32i) + l) < 300i)) {
    let o = ((g * 32i) + l);
    {
      let rlx_value = 0.5f;
      loop {
        let rlx_old = atomicLoad(&b1[b0[o]]);
        let rlx_swap = atomicCompareExchangeWeak(&b1[b0[o]], rlx_old, bitcast<u32>(bitcast<f32>(rlx_old) + rlx_value));
        if (rlx_swap.exchanged) { break; }
      }
    }
  }
}
