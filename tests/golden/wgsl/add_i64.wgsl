@group(0) @binding(0) var<storage, read> b0: array<u32>;
@group(0) @binding(1) var<storage, read> b1: array<u32>;
@group(0) @binding(2) var<storage, read_write> b2: array<u32>;
var<private> rlx_zero: u32;
@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) rlx_group: vec3<u32>, @builtin(local_invocation_index) rlx_lane: u32) {
  rlx_zero = rlx_group.z;
  let rlx_flat = rlx_group.x;
  let g = i32(rlx_flat);
  let l = i32(rlx_lane);
  if ((((g * 32i) + l) < 40i)) {
    let o = ((g * 32i) + l);
    let w_1 = (o * 2i);
    let w_2 = b0[w_1];
    let w_3 = b0[(w_1 + 1i)];
    let w_4 = b1[w_1];
    let w_5 = b1[(w_1 + 1i)];
    let w_6 = (w_2 + w_4);
    let w_7 = ((w_3 + w_5) + u32((w_6 < w_2)));
    b2[w_1] = w_6;
    b2[(w_1 + 1i)] = w_7;
  }
}
